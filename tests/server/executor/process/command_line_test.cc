#include "server/executor/process/command_line.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tally::server {
namespace {

ExecutorOptions Parse(std::vector<std::string> more) {
  std::vector<std::string> words{"tally-executor", "--domain", "d", "--owner-uid", "1", "--control-socket", "/s"};
  words.insert(words.end(), more.begin(), more.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  auto parsed = ParseExecutorCommandLine(static_cast<int>(arguments.size()), arguments.data());
  EXPECT_TRUE(std::holds_alternative<ExecutorOptions>(parsed));
  return std::get<ExecutorOptions>(std::move(parsed));
}

// One that held it for best-effort work would keep it from a service. In one context there is nobody to hold it
// against.
TEST(ExecutorCommandLineTest, OnlyHighPriorityExecutorsOfTheirOwnHoldTheGpu) {
  EXPECT_TRUE(Parse({"--priority-class", "high", "--hold-gpu"}).config.may_hold);
  EXPECT_FALSE(Parse({"--priority-class", "high"}).config.may_hold);
  EXPECT_FALSE(Parse({"--priority-class", "best-effort", "--hold-gpu"}).config.may_hold);
  EXPECT_FALSE(Parse({"--priority-class", "high", "--mixed-classes", "--hold-gpu"}).config.may_hold);
}

TEST(ExecutorCommandLineTest, AnOwnDomainWaitsForNobody) {
  EXPECT_EQ(Parse({"--priority-class", "high", "--idle-seconds", "60"}).idle, std::chrono::seconds(60));
  EXPECT_LE(Parse({"--priority-class", "high", "--idle-seconds", "60", "--own-domain"}).idle, std::chrono::seconds(1));
  EXPECT_EQ(Parse({"--priority-class", "high", "--idle-seconds", "0", "--own-domain"}).idle, std::chrono::seconds(0));
}

}  // namespace
}  // namespace tally::server
