#include "scheduler/drain_budget.h"

#include <gtest/gtest.h>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr TenantId kA{0, 1};
constexpr TenantId kB{1, 1};

LaunchAsked Asked(int microseconds_long, uint16_t fill) {
  return {.duration = microseconds(microseconds_long), .fill = fill};
}

TEST(DrainBudget, WhateverIsAskedGoesAlone) {
  DrainBudget budget(microseconds(500), microseconds(30), milliseconds(250));
  EXPECT_TRUE(budget.Admits(kA, Asked(100'000, 1000), TimePoint{}));
  EXPECT_TRUE(budget.Admits(kA, Asked(0, 1000), TimePoint{}));
}

TEST(DrainBudget, LaunchesOfOneStreamAddUp) {
  DrainBudget budget(microseconds(500), microseconds(30), milliseconds(250));
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(budget.Admits(kA, Asked(100, 100), TimePoint{})) << i;
    budget.OnDispatched(kA, Asked(100, 100), TimePoint{});
  }
  EXPECT_FALSE(budget.Admits(kA, Asked(100, 100), TimePoint{}));
  EXPECT_EQ(budget.drain(), microseconds(500));
  budget.OnEnded(kA, Asked(100, 100), microseconds(100), TimePoint{});
  EXPECT_TRUE(budget.Admits(kA, Asked(100, 100), TimePoint{}));
}

TEST(DrainBudget, StreamsThatFitTogetherRunSideBySide) {
  DrainBudget budget(microseconds(500), microseconds(30), milliseconds(250));
  budget.OnDispatched(kA, Asked(400, 300), TimePoint{});
  EXPECT_TRUE(budget.Admits(kB, Asked(400, 600), TimePoint{}));
  EXPECT_FALSE(budget.Admits(kB, Asked(400, 800), TimePoint{})) << "0.3 + 0.8 of the GPU: one after the other";
  EXPECT_EQ(budget.RoomFor(kB, Asked(100, 800), TimePoint{}), DrainBudget::Room::kBehind);
  EXPECT_EQ(budget.RoomFor(kB, Asked(100, 700), TimePoint{}), DrainBudget::Room::kBeside);
  EXPECT_TRUE(budget.Admits(kA, {.duration = microseconds(400), .stream = 1, .fill = 300}, TimePoint{}));
  EXPECT_FALSE(budget.Admits(kA, {.duration = microseconds(400), .stream = 0, .fill = 300}, TimePoint{}));
}

TEST(DrainBudget, WhatCanYieldCountsWithItsTurnaroundIfItIsFirst) {
  DrainBudget budget(microseconds(500), microseconds(30), milliseconds(250));
  const LaunchAsked yielding{.duration = milliseconds(50), .fill = 400, .can_yield = true};
  EXPECT_EQ(budget.OnDispatched(kA, yielding, TimePoint{}), microseconds(30));
  EXPECT_TRUE(budget.Admits(kB, yielding, TimePoint{})) << "beside it";
  EXPECT_TRUE(budget.Admits(kB, Asked(470, 1000), TimePoint{})) << "after it has yielded";
  EXPECT_FALSE(budget.Admits(kA, yielding, TimePoint{})) << "behind it, it may have to be waited for";
  budget.OnEnded(kA, yielding, microseconds(30), TimePoint{});
  EXPECT_TRUE(budget.empty());
}

TEST(DrainBudget, WhatWasNeverMeasuredGoesAlone) {
  DrainBudget budget(microseconds(500), microseconds(30), milliseconds(250));
  budget.OnDispatched(kA, Asked(10, 10), TimePoint{});
  EXPECT_FALSE(budget.Admits(kB, Asked(0, 10), TimePoint{}));
  budget.OnEnded(kA, Asked(10, 10), microseconds(10), TimePoint{});
  budget.OnDispatched(kB, Asked(0, 10), TimePoint{});
  EXPECT_FALSE(budget.Admits(kA, Asked(10, 10), TimePoint{}));
}

TEST(DrainBudget, GivesUpWaitingForWhatDoesNotEnd) {
  DrainBudget budget(microseconds(500), microseconds(30), milliseconds(250));
  ManualClock clock;
  budget.OnDispatched(kA, Asked(400, 1000), clock.Now());
  clock.Advance(milliseconds(249));
  EXPECT_FALSE(budget.Admits(kA, Asked(400, 1000), clock.Now()));
  clock.Advance(milliseconds(1));
  EXPECT_EQ(budget.GivesUpAt(), clock.Now());
  EXPECT_TRUE(budget.Admits(kA, Asked(400, 1000), clock.Now()));
  budget.OnDispatched(kA, Asked(400, 1000), clock.Now());
  EXPECT_FALSE(budget.Admits(kA, Asked(400, 1000), clock.Now())) << "one at a time";
}

TEST(DrainBudget, MoreStreamsThanItCountsDoNotConfuseIt) {
  DrainBudget budget(milliseconds(1), microseconds(30), milliseconds(250));
  for (uint32_t i = 0; i < 40; ++i) budget.OnDispatched({i, 1}, Asked(10, 10), TimePoint{});
  EXPECT_FALSE(budget.Admits({50, 1}, Asked(10, 10), TimePoint{})) << "no place for one more stream";
  for (uint32_t i = 0; i < 40; ++i) {
    EXPECT_FALSE(budget.empty());
    budget.OnEnded({i, 1}, Asked(10, 10), microseconds(10), TimePoint{});
  }
  EXPECT_TRUE(budget.empty());
  EXPECT_EQ(budget.drain(), Nanoseconds(0));
  EXPECT_TRUE(budget.Admits({50, 1}, Asked(10, 10), TimePoint{}));
}

}  // namespace
}  // namespace tally::scheduler
