#include "server/daemon/command_line.h"

#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

std::variant<DaemonConfig, int> Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "tallyd");
  auto parsed = ParseDaemonCommandLine(static_cast<int>(words.size()), const_cast<char**>(words.data()));
  if (const int* exit_status = std::get_if<int>(&parsed)) return *exit_status;
  return std::get<DaemonStart>(parsed).config;
}

TEST(DaemonCommandLine, SwitchesThatAreNotGivenLeaveTheDefaults) {
  const DaemonConfig defaults;
  const auto parsed = Parse({"--driver", "sim"});
  ASSERT_TRUE(std::holds_alternative<DaemonConfig>(parsed));
  const auto& config = std::get<DaemonConfig>(parsed);
  EXPECT_FALSE(config.suspend_best_effort);
  EXPECT_EQ(config.share_contexts, defaults.share_contexts);
  EXPECT_EQ(config.best_effort_time_slice, defaults.best_effort_time_slice);
  EXPECT_EQ(config.starvation_bound, defaults.starvation_bound);
  EXPECT_EQ(config.turnaround_threshold, defaults.turnaround_threshold);
  EXPECT_EQ(config.gates_rest_after, std::chrono::seconds(1));
  EXPECT_EQ(config.transforms, defaults.transforms);
  EXPECT_EQ(config.policy, defaults.policy);
}

TEST(DaemonCommandLine, GatesMayBeToldNeverToRest) {
  const auto parsed = Parse({"--gates-rest-after-ms", "0"});
  ASSERT_TRUE(std::holds_alternative<DaemonConfig>(parsed));
  EXPECT_EQ(std::get<DaemonConfig>(parsed).gates_rest_after, std::chrono::milliseconds(0));
}

TEST(DaemonCommandLine, DeschedulingIsSwitchedOnAndOff) {
  const auto off = Parse({"--no-suspend-best-effort"});
  ASSERT_TRUE(std::holds_alternative<DaemonConfig>(off));
  EXPECT_FALSE(std::get<DaemonConfig>(off).suspend_best_effort);
  const auto on = Parse({"--policy", "look-ahead", "--suspend-best-effort"});
  ASSERT_TRUE(std::holds_alternative<DaemonConfig>(on));
  EXPECT_TRUE(std::get<DaemonConfig>(on).suspend_best_effort);
  EXPECT_TRUE(std::holds_alternative<int>(Parse({"--suspend-best-effort", "--no-suspend-best-effort"})));
}

TEST(DaemonCommandLine, RefreshingIsSwitchedOff) {
  const auto off = Parse({"--no-refresh-contexts"});
  ASSERT_TRUE(std::holds_alternative<DaemonConfig>(off));
  EXPECT_FALSE(std::get<DaemonConfig>(off).refresh_contexts);
}

TEST(DaemonCommandLine, NothingIsKeptInNoDirectory) {
  const auto parsed = Parse({"--cache-directory", ""});
  ASSERT_TRUE(std::holds_alternative<DaemonConfig>(parsed));
  EXPECT_EQ(std::get<DaemonConfig>(parsed).cache_directory, "");
  EXPECT_NE(std::get<DaemonConfig>(Parse({})).cache_directory, "");
}

TEST(DaemonCommandLine, HoldingIsSwitchedOff) {
  const auto on = Parse({});
  ASSERT_TRUE(std::holds_alternative<DaemonConfig>(on));
  EXPECT_TRUE(std::get<DaemonConfig>(on).hold_gpu);
  const auto off = Parse({"--no-hold-gpu"});
  ASSERT_TRUE(std::holds_alternative<DaemonConfig>(off));
  EXPECT_FALSE(std::get<DaemonConfig>(off).hold_gpu);
}

TEST(DaemonCommandLine, ReadingAgainFindsTheFileAsItIsThenAndTheSameFlags) {
  const TemporaryDirectory temporary;
  const std::string path = temporary.path() + "/tallyd.json";
  std::ofstream(path) << R"({"max_sessions": 5, "max_domains_per_user": 2})";
  std::vector<const char*> words = {"tallyd", "--config", path.c_str(), "--max-sessions", "7"};
  auto parsed = ParseDaemonCommandLine(static_cast<int>(words.size()), const_cast<char**>(words.data()));
  ASSERT_TRUE(std::holds_alternative<DaemonStart>(parsed));
  const auto& start = std::get<DaemonStart>(parsed);
  std::ofstream(path) << R"({"max_sessions": 6, "max_domains_per_user": 3})";
  const auto again = start.read_again();
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->max_sessions, 7u);
  EXPECT_EQ(again->max_domains_per_user, 3u);
  std::ofstream(path) << "{";
  EXPECT_FALSE(start.read_again());
}

}  // namespace
}  // namespace tally::server
