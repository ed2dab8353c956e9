#include "scheduler/notice_budget.h"

#include <gtest/gtest.h>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(NoticeBudget, WhoTakesAllTheTimeGetsItsShareAndNoMore) {
  NoticeBudget budget;
  ManualClock clock;
  clock.Advance(seconds(100));
  std::chrono::nanoseconds taken{0};
  for (int i = 0; i < 1'000'000; ++i) {
    clock.Advance(microseconds(10));
    if (budget.TryTake(microseconds(700), clock.Now())) taken += microseconds(700);
  }
  EXPECT_LE(taken, milliseconds(500 + 10));  // 5 % of 10 s, and what it begins with
  EXPECT_GE(taken, milliseconds(495));
}

TEST(NoticeBudget, APauseSavesNoMoreThanTheMost) {
  NoticeBudget budget;
  ManualClock clock;
  clock.Advance(std::chrono::hours(1000));
  EXPECT_FALSE(budget.TryTake(milliseconds(11), clock.Now()));
  EXPECT_TRUE(budget.TryTake(milliseconds(10), clock.Now()));
  EXPECT_FALSE(budget.TryTake(microseconds(1), clock.Now()));
  clock.Advance(std::chrono::hours(1000));
  EXPECT_FALSE(budget.TryTake(milliseconds(11), clock.Now()));
}

TEST(NoticeBudget, WhatIsReturnedIsNotMoreThanTheMost) {
  NoticeBudget budget;
  ManualClock clock;
  budget.Return(seconds(10));
  EXPECT_EQ(budget.left(), milliseconds(10));
  ASSERT_TRUE(budget.TryTake(milliseconds(4), clock.Now()));
  budget.Return(milliseconds(3));
  EXPECT_EQ(budget.left(), milliseconds(9));
}

TEST(NoticeBudget, ATimeThatGoesBackAddsNothing) {
  NoticeBudget budget;
  const TimePoint now = TimePoint(seconds(10));
  ASSERT_TRUE(budget.TryTake(milliseconds(10), now));
  EXPECT_FALSE(budget.TryTake(microseconds(1), now - seconds(5)));
  EXPECT_FALSE(budget.TryTake(microseconds(1), now));
  EXPECT_TRUE(budget.TryTake(microseconds(5), now + microseconds(100)));
}

}  // namespace
}  // namespace tally::scheduler
