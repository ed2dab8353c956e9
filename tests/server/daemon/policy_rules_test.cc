#include "server/daemon/policy_rules.h"

#include <gtest/gtest.h>

#include "scheduler/launch.h"

namespace tally::server {
namespace {

using scheduler::TimeSliceAnswer;

TEST(PolicyRules, AConfigurationThatAsksForNothingIsGoodEverywhere) {
  DaemonConfig config;
  ASSERT_TRUE(MergeConfigJson(R"({"policy": "auto", "transforms": "none", "turnaround_threshold_us": 31.6,
                                  "starvation_bound": "off", "suspend_best_effort": false})",
                              config)
                  .ok());
  for (const DriverChoice driver : {DriverChoice::kCuda, DriverChoice::kSim}) {
    const Status checked = CheckHonoured(config, driver);
    EXPECT_TRUE(checked.ok()) << checked.message();
  }
}

TEST(PolicyRules, WorkThatIsHeldBackGetsThroughAfterTenSecondsUnlessSomethingElseWasAskedFor) {
  const auto bound_with = [](const std::string& json) {
    DaemonConfig config;
    config.driver = DriverChoice::kSim;
    EXPECT_TRUE(MergeConfigJson(json, config).ok()) << json;
    EXPECT_TRUE(Validate(1000, config).ok()) << json;
    return StarvationBoundOf(config);
  };
  using std::chrono::seconds;
  EXPECT_EQ(bound_with("{}"), seconds(10));
  EXPECT_EQ(bound_with(R"({"starvation_bound": "auto", "transforms": "slices"})"), seconds(10));
  EXPECT_EQ(bound_with(R"({"policy": "look-ahead"})"), seconds(10));
  EXPECT_EQ(bound_with(R"({"policy": "tally"})"), seconds(10));
  EXPECT_EQ(bound_with(R"({"starvation_bound": "off"})"), seconds(0));
  EXPECT_EQ(bound_with(R"({"starvation_bound": "7s"})"), seconds(7));
  EXPECT_EQ(bound_with(R"({"policy": "none"})"), seconds(0));
  EXPECT_EQ(bound_with(R"({"policy": "tally-paper"})"), seconds(0));
  EXPECT_EQ(bound_with(R"({"transforms": "gate"})"), seconds(0)) << "it would yield what it was granted";
  EXPECT_EQ(bound_with(R"({"suspend_best_effort": true})"), seconds(0)) << "what was asked for is not refused";
}

TEST(PolicyRules, WhatIsExpectedOfADriverThatHasNotAnswered) {
  DaemonConfig config;
  EXPECT_EQ(ExpectedPolicy(config, DriverChoice::kCuda).policy, scheduler::kTimeSlicesPolicy);
  EXPECT_EQ(ExpectedPolicy(config, DriverChoice::kSim).policy, scheduler::kLookAheadPolicy);
  config.share_contexts = true;
  EXPECT_EQ(ExpectedPolicy(config, DriverChoice::kCuda).policy, scheduler::kLookAheadPolicy);
  config.share_contexts = false;
  config.best_effort_time_slice = std::chrono::microseconds(0);
  EXPECT_EQ(ExpectedPolicy(config, DriverChoice::kCuda).policy, scheduler::kLookAheadPolicy);
  config.policy = "fair";
  EXPECT_EQ(ExpectedPolicy(config, DriverChoice::kCuda).policy, "fair");
}

TEST(PolicyRules, OneThingThatIsAskedForIsEnough) {
  const auto refuses = [](auto change, DriverChoice driver) {
    DaemonConfig config;
    change(config);
    return !CheckHonoured(config, driver).ok();
  };
  const auto bound = [](auto& config) { config.starvation_bound = std::chrono::milliseconds(100); };
  const auto descheduling = [](auto& config) { config.suspend_best_effort = true; };
  const auto transforms = [](auto& config) { config.transforms = Transforms::kGate; };
  const auto turnaround = [](auto& config) { config.turnaround_threshold = std::chrono::microseconds(20); };
  EXPECT_TRUE(refuses(bound, DriverChoice::kCuda));
  EXPECT_TRUE(refuses(descheduling, DriverChoice::kCuda));
  EXPECT_TRUE(refuses(transforms, DriverChoice::kCuda));
  EXPECT_TRUE(refuses(turnaround, DriverChoice::kCuda));
  EXPECT_FALSE(refuses(bound, DriverChoice::kSim));
  EXPECT_FALSE(refuses(transforms, DriverChoice::kSim));
  EXPECT_FALSE(refuses(turnaround, DriverChoice::kSim));
}

TEST(PolicyRules, ASessionAsksForWhatIsNotAsEverybodyHasIt) {
  control::SessionIdentity session{};
  session.weight = scheduler::kDefaultWeight;
  EXPECT_TRUE(CheckHonoured(session, scheduler::kTimeSlicesPolicy).ok());
  session.weight = 300;
  EXPECT_FALSE(CheckHonoured(session, scheduler::kTimeSlicesPolicy).ok());
  EXPECT_TRUE(CheckHonoured(session, "fair").ok());
  session.level = 1;
  EXPECT_FALSE(CheckHonoured(session, "fair").ok());
  EXPECT_TRUE(CheckHonoured(session, "tally").ok());
  session.weight = scheduler::kDefaultWeight;
  session.level = 0;
  session.slo_latency_ns = 1000;
  EXPECT_FALSE(CheckHonoured(session, "none").ok());
  EXPECT_TRUE(CheckHonoured(session, scheduler::kLookAheadPolicy).ok());
}

TEST(PolicyRules, AChangeIsAskedForEvenIfItIsToTheDefault) {
  control::ShareChange change;
  EXPECT_TRUE(CheckHonoured(change, "none").ok());
  change.weight = scheduler::kDefaultWeight;
  EXPECT_FALSE(CheckHonoured(change, "none").ok());
  change.weight.reset();
  change.turnaround = std::chrono::nanoseconds(0);
  EXPECT_TRUE(CheckHonoured(change, "none").ok()) << "as all others have it";
  change.turnaround = std::chrono::microseconds(20);
  EXPECT_FALSE(CheckHonoured(change, "none").ok());
}

TEST(PolicyRules, WhatADriverSays) {
  const auto answer = [](uint32_t num_groups, uint32_t num_refused, uint32_t has_contexts) {
    control::LinkTimeSlices slices{};
    slices.num_groups = num_groups;
    slices.num_refused = num_refused;
    slices.has_contexts = has_contexts;
    return AnswerOf(slices);
  };
  EXPECT_EQ(answer(0, 0, 0), TimeSliceAnswer::kNone);
  EXPECT_EQ(answer(9, 0, 1), TimeSliceAnswer::kAccepted);
  EXPECT_EQ(answer(9, 0, 0), TimeSliceAnswer::kAccepted) << "it is being made";
  EXPECT_EQ(answer(9, 1, 1), TimeSliceAnswer::kRefused);
  EXPECT_EQ(answer(0, 0, 1), TimeSliceAnswer::kRefused) << "its groups are made where nobody sees them";
}

}  // namespace
}  // namespace tally::server
