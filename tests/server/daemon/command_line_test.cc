#include "server/daemon/command_line.h"

#include <gtest/gtest.h>

#include <vector>

namespace tally::server {
namespace {

std::variant<DaemonConfig, int> Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "tallyd");
  return ParseDaemonCommandLine(static_cast<int>(words.size()), const_cast<char**>(words.data()));
}

TEST(DaemonCommandLine, SwitchesThatAreNotGivenLeaveTheDefaults) {
  const DaemonConfig defaults;
  const auto parsed = Parse({"--driver", "sim"});
  ASSERT_TRUE(std::holds_alternative<DaemonConfig>(parsed));
  const auto& config = std::get<DaemonConfig>(parsed);
  EXPECT_TRUE(config.suspend_best_effort);
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

TEST(DaemonCommandLine, SuspendingIsSwitchedOnAndOff) {
  const auto off = Parse({"--no-suspend-best-effort"});
  ASSERT_TRUE(std::holds_alternative<DaemonConfig>(off));
  EXPECT_FALSE(std::get<DaemonConfig>(off).suspend_best_effort);
  const auto on = Parse({"--suspend-best-effort"});
  ASSERT_TRUE(std::holds_alternative<DaemonConfig>(on));
  EXPECT_TRUE(std::get<DaemonConfig>(on).suspend_best_effort);
  EXPECT_TRUE(std::holds_alternative<int>(Parse({"--suspend-best-effort", "--no-suspend-best-effort"})));
}

TEST(DaemonCommandLine, RefreshingIsSwitchedOff) {
  const auto off = Parse({"--no-refresh-contexts"});
  ASSERT_TRUE(std::holds_alternative<DaemonConfig>(off));
  EXPECT_FALSE(std::get<DaemonConfig>(off).refresh_contexts);
}

}  // namespace
}  // namespace tally::server
