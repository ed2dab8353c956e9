#include "server/daemon/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

using ::testing::HasSubstr;

TEST(Config, FileFillsEveryKindOfKey) {
  DaemonConfig config;
  const Status merged = MergeConfigJson(R"({
    // comments are allowed
    "socket": "/x/tally.sock", "allowed_uids": [1, 2], "high_priority_uids": "any", "default_priority": "high",
    "share_domains_between_users": true, "suspend_best_effort": true, "refresh_contexts": false,
    "hold_gpu": false, "max_sessions": 7, "driver": "sim", "executor_idle_seconds": 3,
    "session_device_memory_bytes": 8589934592, "metrics_address": "0",
    "policy": "tally", "transforms": "slices", "turnaround_threshold_us": 12.5, "gates_rest_after_ms": 0, "starvation_bound": "100ms", "cache_directory": "/y"})",
                                        config);
  ASSERT_TRUE(merged.ok()) << merged.message();
  EXPECT_EQ(config.socket, "/x/tally.sock");
  EXPECT_TRUE(config.allowed_uids->Contains(2));
  EXPECT_FALSE(config.allowed_uids->Contains(3));
  EXPECT_TRUE(config.high_priority_uids->Contains(3));
  EXPECT_EQ(config.default_priority, shm::PriorityClass::kHighPriority);
  EXPECT_TRUE(config.share_domains_between_users);
  EXPECT_TRUE(config.suspend_best_effort);
  EXPECT_FALSE(config.refresh_contexts);
  EXPECT_FALSE(config.hold_gpu);
  EXPECT_EQ(config.max_sessions, 7u);
  EXPECT_EQ(config.driver, DriverChoice::kSim);
  EXPECT_EQ(config.executor_idle, std::chrono::seconds(3));
  EXPECT_EQ(config.session_device_memory_bytes, 8589934592u);
  EXPECT_TRUE(config.is_metrics_address_explicit);
  EXPECT_EQ(config.policy, "tally");
  EXPECT_EQ(config.transforms, Transforms::kSlices);
  EXPECT_EQ(config.turnaround_threshold, std::chrono::nanoseconds(12'500));
  EXPECT_EQ(config.gates_rest_after, std::chrono::milliseconds(0));
  EXPECT_EQ(config.starvation_bound, std::chrono::milliseconds(100));
  EXPECT_EQ(config.cache_directory, "/y");
}

struct BadFile {
  const char* text;
  const char* words;
};

class BadConfig : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadConfig, IsRefusedWithASentenceThatNamesTheKey) {
  DaemonConfig config;
  const Status merged = MergeConfigJson(GetParam().text, config);
  EXPECT_EQ(merged.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(merged.message(), HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadConfig,
    ::testing::Values(BadFile{"{", "not valid JSON"}, BadFile{R"({"allowed_uids": [4294967296]})", "allowed_uids"},
                      BadFile{"[]", "one JSON object"}, BadFile{R"({"sokcet": "/x"})", "unknown key 'sokcet'"},
                      BadFile{R"({"socket": 1})", "'socket' must be a string, not 1"},
                      BadFile{R"({"max_sessions": -1})", "'max_sessions'"},
                      BadFile{R"({"max_sessions": 1.5})", "'max_sessions'"},
                      BadFile{R"({"allowed_uids": "some"})", "'allowed_uids'"},
                      BadFile{R"({"allowed_uids": ["bob"]})", "'allowed_uids'"},
                      BadFile{R"({"driver": "gpu"})", "'gpu' is no driver"},
                      BadFile{R"({"default_priority": "low"})", "'low' is no priority"},
                      BadFile{R"({"policy": "best"})", "there are auto (time-slices where"},
                      BadFile{R"({"transforms": "some"})", "'some' is no choice"},
                      BadFile{R"({"starvation_bound": "soon"})", "'soon' is no time"},
                      BadFile{R"({"starvation_bound": "1us"})", "not between 1 and"},
                      BadFile{R"({"turnaround_threshold_us": 0})", "'turnaround_threshold_us'"},
                      BadFile{R"({"gates_rest_after_ms": -1})", "'gates_rest_after_ms'"},
                      BadFile{R"({"share_domains_between_users": 1})", "true or false"},
                      BadFile{"{\n\n  \"socket\": \"/x\",\n  \"polcy\": 1\n}", "line 4: unknown key"},
                      BadFile{"{// one\n\"driver\"\n:\n\"gpu\"\n}", "line 2: driver: 'gpu'"},
                      BadFile{"{\n\"driver\": \"sim\"\n\"policy\"", "line 3: not valid JSON"},
                      BadFile{"{\"slo\": {\"a\":\n 1,\n\"b\": 2}}", "line 1: unknown key 'slo'"},
                      BadFile{"", "line 1: not valid JSON"}));

TEST(Config, AnUnreadableFileIsOneSentenceThatNamesItAndTheReason) {
  DaemonConfig config;
  const TemporaryDirectory temporary;
  EXPECT_EQ(MergeConfigFile(temporary.path() + "/none", config).message(),
            "cannot read the config file '" + temporary.path() + "/none': No such file or directory");
  EXPECT_THAT(MergeConfigFile(temporary.path(), config).message(), HasSubstr("Is a directory"));
}

TEST(Config, AStarvationBoundGoesWithWhatCanKeepIt) {
  DaemonConfig config;
  config.driver = DriverChoice::kSim;
  config.starvation_bound = std::chrono::milliseconds(100);
  EXPECT_TRUE(Validate(0, config).ok());
  config.suspend_best_effort = true;
  EXPECT_THAT(Validate(0, config).message(), HasSubstr("does not go with a starvation bound"));
  config.suspend_best_effort = false;
  config.driver = DriverChoice::kCuda;
  EXPECT_THAT(Validate(0, config).message(), HasSubstr("ignored by the policy in force, time-slices"));
  config.policy = "fair";
  EXPECT_THAT(Validate(0, config).message(), HasSubstr("ignored by the policy in force, fair"));
  config.policy = "tally";
  EXPECT_TRUE(Validate(0, config).ok());
  config.transforms = Transforms::kGate;
  EXPECT_THAT(Validate(0, config).message(), HasSubstr("not with gate"));
}

TEST(Config, DefaultsDependOnTheUser) {
  ::unsetenv("XDG_RUNTIME_DIR");
  DaemonConfig root;
  ASSERT_TRUE(Validate(0, root).ok());
  EXPECT_EQ(root.socket, "/run/tally/tally.sock");
  EXPECT_TRUE(root.allowed_uids->everybody);
  DaemonConfig user;
  ASSERT_TRUE(Validate(1000, user).ok());
  EXPECT_EQ(user.socket, "/tmp/tally-1000/tally.sock");
  EXPECT_EQ(user.runtime_dir, "/tmp/tally-1000");
  EXPECT_TRUE(user.allowed_uids->Contains(1000));
  EXPECT_FALSE(user.allowed_uids->Contains(1001));
  EXPECT_EQ(user.high_priority_uids, (UidSet{false, {1000}})) << "to go before everybody else is for those who may";
  EXPECT_EQ(root.high_priority_uids, (UidSet{false, {0}}));
  ::setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1);
  DaemonConfig session;
  ASSERT_TRUE(Validate(1000, session).ok());
  EXPECT_EQ(session.socket, "/run/user/1000/tally/tally.sock");
  DaemonConfig embedded;
  embedded.embedded_parent = 1;
  ASSERT_TRUE(Validate(0, embedded).ok());
  EXPECT_FALSE(embedded.allowed_uids->everybody);
}

TEST(Config, ImpossibleValuesAreRefused) {
  auto refuses = [](auto change) {
    DaemonConfig config;
    change(config);
    return !Validate(1000, config).ok();
  };
  EXPECT_FALSE(refuses([](auto&) {}));
  EXPECT_TRUE(refuses([](auto& config) { config.socket = "relative.sock"; }));
  EXPECT_TRUE(refuses([](auto& config) { config.socket = "/tally.sock"; }));
  EXPECT_TRUE(refuses([](auto& config) { config.socket = "/tmp/"; }));
  EXPECT_TRUE(refuses([](auto& config) { config.socket = "/" + std::string(100, 'x') + "/tally.sock"; }));
  EXPECT_TRUE(refuses([](auto& config) { config.max_sessions = 0; }));
  EXPECT_TRUE(refuses([](auto& config) { config.executor_start_limit = std::chrono::seconds(0); }));
  for (const char* address : {"9464", "localhost:", ":9464", "localhost:99999", "localhost:port"}) {
    EXPECT_TRUE(refuses([&](auto& config) { config.metrics_address = address; })) << address;
  }
}

}  // namespace
}  // namespace tally::server
