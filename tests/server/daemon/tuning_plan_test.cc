#include "server/daemon/tuning_plan.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

using scheduler::SloFeedback;
using scheduler::Tuning;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

TEST(TuningPlanTest, WithoutObjectivesWhatIsConfigured) {
  EXPECT_EQ(TuningFor(std::nullopt, nanoseconds(31'600)), Tuning{});
  EXPECT_EQ(TuningFor(SloFeedback::kFirstStep, nanoseconds(31'600)), Tuning{});
  const Tuning tuning = TuningFor(std::nullopt, microseconds(50));
  EXPECT_EQ(tuning.turnaround_threshold, microseconds(50));
  EXPECT_EQ(tuning.target_drain, Tuning{}.target_drain);
}

TEST(TuningPlanTest, ThrottlingShortensWhatBestEffortWorkMayDo) {
  const Tuning careful = TuningFor(SloFeedback::kSteps, nanoseconds(31'600));
  const Tuning generous = TuningFor(0, nanoseconds(31'600));
  EXPECT_NEAR(static_cast<double>(careful.turnaround_threshold.count()), 10'000, 1);
  EXPECT_EQ(careful.min_hold_off, microseconds(100));
  EXPECT_EQ(careful.max_hold_off, microseconds(2500));
  EXPECT_EQ(careful.target_drain, microseconds(100));
  EXPECT_NEAR(static_cast<double>(generous.turnaround_threshold.count()), 100'000, 1);
  EXPECT_EQ(generous.max_hold_off, microseconds(100));
  EXPECT_EQ(generous.target_drain, microseconds(2500));
}

TEST(TuningPlanTest, TheConfiguredThresholdIsTheMiddle) {
  const Tuning careful = TuningFor(SloFeedback::kSteps, nanoseconds(316'000));
  EXPECT_NEAR(static_cast<double>(careful.turnaround_threshold.count()), 100'000, 10);
}

}  // namespace
}  // namespace tally::server
