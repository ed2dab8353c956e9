#include "server/daemon/reload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace tally::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

DaemonConfig Validated(const std::string& json) {
  DaemonConfig config;
  config.driver = DriverChoice::kSim;  // what a GPU's policy ignores would be refused
  Status status = MergeConfigJson(json, config);
  if (status.ok()) status = Validate(1000, config);
  EXPECT_TRUE(status.ok()) << json << ": " << status.message();
  return config;
}

// A value for each key that is not its default. A new key without one fails the test below.
const std::map<std::string, std::string>& OtherValues() {
  static const std::map<std::string, std::string> values = {
      {"socket", R"("/else/tally.sock")"},
      {"allowed_uids", "[7]"},
      {"high_priority_uids", "[7]"},
      {"grants", R"([{"tenant": "a"}])"},
      {"default_priority", R"("high")"},
      {"share_domains_between_users", "true"},
      {"share_contexts", "true"},
      {"show_own_sessions", "false"},
      {"show_totals", "true"},
      {"suspend_best_effort", "true"},
      {"refresh_contexts", "false"},
      {"hold_gpu", "false"},
      {"max_sessions", "3"},
      {"max_sessions_per_user", "3"},
      {"max_domains_per_user", "3"},
      {"session_device_memory_bytes", "4096"},
      {"session_pinned_memory_bytes", "4096"},
      {"driver", R"("cuda")"},
      {"executor_idle_seconds", "3"},
      {"departed_work_limit_seconds", "3"},
      {"executor_start_limit_seconds", "3"},
      {"policy", R"("tally")"},
      {"transforms", R"("slices")"},
      {"turnaround_threshold_us", "50"},
      {"gates_rest_after_ms", "3"},
      {"time_slice_us", "3"},
      {"starvation_bound", R"("100ms")"},
      {"cache_directory", R"("/else")"},
      {"metrics_address", R"("127.0.0.1:1")"},
  };
  return values;
}

TEST(Reload, EveryKeyOfTheFileIsSeenToChangeAndOnlyWhatNeedsNoRestartIsTaken) {
  for (const std::string& key : ConfigKeys()) {
    SCOPED_TRACE(key);
    ASSERT_TRUE(OtherValues().contains(key));
    const DaemonConfig running = Validated("{}");
    const DaemonConfig wanted = Validated("{\"" + key + "\": " + OtherValues().at(key) + "}");
    const Reload reload = PlanReload(running, wanted);
    std::vector<std::string> all = reload.now;
    all.insert(all.end(), reload.new_executors.begin(), reload.new_executors.end());
    all.insert(all.end(), reload.needs_restart.begin(), reload.needs_restart.end());
    EXPECT_THAT(all, ElementsAre(key));
    // What was taken is no difference any more; what was not still is.
    const Reload again = PlanReload(reload.config, wanted);
    EXPECT_THAT(again.now, IsEmpty());
    EXPECT_THAT(again.new_executors, IsEmpty());
    EXPECT_EQ(again.needs_restart, reload.needs_restart);
  }
}

TEST(Reload, UsersAndLimitsApplyAtOncePolicyToNewExecutorsAndTheSocketToTheNextTallyd) {
  const Reload reload = PlanReload(Validated("{}"), Validated(R"({
    "allowed_uids": [7], "max_sessions": 2, "policy": "fair", "socket": "/else/tally.sock", "metrics_address": "0"})"));
  EXPECT_TRUE(reload.config.allowed_uids->Contains(7));
  EXPECT_EQ(reload.config.max_sessions, 2u);
  EXPECT_EQ(reload.config.policy, "fair");
  EXPECT_EQ(reload.config.socket, Validated("{}").socket);
  EXPECT_EQ(
      reload.Sentence(),
      "read the configuration again: changed: allowed_uids, max_sessions; for executors started from now on: policy; "
      "only after a restart of tallyd: socket, metrics_address");
}

TEST(Reload, NothingChangedIsSaid) {
  EXPECT_EQ(PlanReload(Validated("{}"), Validated("{}")).Sentence(),
            "read the configuration again: nothing has changed");
}

}  // namespace
}  // namespace tally::server
