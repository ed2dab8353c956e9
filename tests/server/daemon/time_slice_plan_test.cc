#include "server/daemon/time_slice_plan.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

using std::chrono::microseconds;
constexpr auto kHigh = shm::PriorityClass::kHighPriority;
constexpr auto kBestEffort = shm::PriorityClass::kBestEffort;

TEST(TimeSlicePlanTest, OneHighPriorityDomainIsNeverInterrupted) {
  EXPECT_EQ(TimeSliceFor(kHigh, {1, 1}, microseconds(1)), kHighPriorityTimeSlice);
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 1}, microseconds(1)), microseconds(1));
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 1}, microseconds(200)), microseconds(200));
}

TEST(TimeSlicePlanTest, AClassThatIsAloneSharesWithTheRestOfTheMachineAsTheDriverDoes) {
  EXPECT_EQ(TimeSliceFor(kHigh, {1, 0}, microseconds(1)), microseconds(0));
  EXPECT_EQ(TimeSliceFor(kBestEffort, {0, 1}, microseconds(1)), microseconds(0));
}

TEST(TimeSlicePlanTest, SeveralHighPriorityDomainsShareAsTheDriverDoes) {
  EXPECT_EQ(TimeSliceFor(kHigh, {2, 1}, microseconds(1)), microseconds(0));
  EXPECT_EQ(TimeSliceFor(kBestEffort, {2, 1}, microseconds(1)), microseconds(1));
}

TEST(TimeSlicePlanTest, BestEffortDomainsAmongThemselvesShareAsTheDriverDoes) {
  EXPECT_EQ(TimeSliceFor(kBestEffort, {0, 1}, microseconds(1)), microseconds(0));
}

TEST(TimeSlicePlanTest, SeveralBestEffortDomainsAreNotSwitchedAllTheTime) {
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 2}, microseconds(1)), kSharedTimeSlice);
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 3}, microseconds(1000)), microseconds(1000));
  EXPECT_EQ(TimeSliceFor(kHigh, {1, 2}, microseconds(1)), kHighPriorityTimeSlice);
}

TEST(TimeSlicePlanTest, WithAStarvationBoundNobodyKeepsTheGpuForLonger) {
  const std::chrono::milliseconds bound(100);
  EXPECT_EQ(TimeSliceFor(kHigh, {1, 1}, microseconds(1), bound), bound);
  EXPECT_EQ(TimeSliceFor(kHigh, {1, 1}, microseconds(1), std::chrono::seconds(5)), kHighPriorityTimeSlice);
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 1}, microseconds(1), bound), kSharedTimeSlice);
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 1}, microseconds(2000), bound), microseconds(2000));
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 1}, microseconds(0), bound), microseconds(0));
  EXPECT_EQ(TimeSliceFor(kHigh, {1, 0}, microseconds(1), bound), microseconds(0));
}

TEST(TimeSlicePlanTest, ZeroLeavesThemAlone) {
  EXPECT_EQ(TimeSliceFor(kHigh, {1, 1}, microseconds(0)), microseconds(0));
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 1}, microseconds(0)), microseconds(0));
}

}  // namespace
}  // namespace tally::server
