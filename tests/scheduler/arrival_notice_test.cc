#include "scheduler/arrival_notice.h"

#include <gtest/gtest.h>

#include <random>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

class ArrivalNoticeTest : public ::testing::Test {
 protected:
  TimePoint At(int64_t us) const { return TimePoint(seconds(50)) + microseconds(us); }
  ArrivalNotice::Step Look(int64_t us, std::optional<TimePoint> work = std::nullopt, bool is_busy = false) {
    return notice_.Advance(At(us), work, is_busy, budget_);
  }
  void ExpectAt(int64_t from_us, int64_t until_us, int64_t now_us = 0) {
    notice_.OnExpected(At(from_us), At(until_us), At(now_us));
  }

  ArrivalNotice notice_;
  NoticeBudget budget_;
};

TEST_F(ArrivalNoticeTest, TheGpuTurnsASwitchBeforeTheWorkAndStaysUntilItComes) {
  ExpectAt(1000, 1300);
  auto step = Look(0);
  EXPECT_FALSE(step.hold);
  EXPECT_EQ(step.next, At(780));
  step = Look(780);
  EXPECT_EQ(step.hold, microseconds(600));
  EXPECT_EQ(step.next, At(1380));
  EXPECT_FALSE(Look(900).releases);
  // It is on its way: the GPU must not find that there is nothing.
  EXPECT_FALSE(Look(1051, At(1050), true).releases);
  EXPECT_TRUE(Look(1380).releases);
  EXPECT_EQ(notice_.counts(), (ArrivalNotice::Counts{.announced = 1, .hit = 1}));
  EXPECT_FALSE(Look(2000).next);
}

TEST_F(ArrivalNoticeTest, AHitCostsWhatItHeldBeyondTheSwitch) {
  ExpectAt(1000, 1300);
  ASSERT_TRUE(Look(780).hold);
  Look(1380, At(1090));
  EXPECT_EQ(budget_.left(), milliseconds(10) - microseconds(90));
}

TEST_F(ArrivalNoticeTest, WhatDoesNotComeCostsTheHoldAndTwoSwitches) {
  ExpectAt(1000, 1300);
  ASSERT_TRUE(Look(780).hold);
  EXPECT_TRUE(Look(1380).releases);
  EXPECT_EQ(notice_.counts(), (ArrivalNotice::Counts{.announced = 1, .missed = 1}));
  EXPECT_EQ(budget_.left(), milliseconds(10) - microseconds(600 + 300));
}

TEST_F(ArrivalNoticeTest, WorkThatIsThereFirstIsLate) {
  ExpectAt(1000, 1300);
  Look(0);
  EXPECT_FALSE(Look(700, At(650), true).hold);
  EXPECT_EQ(notice_.counts(), (ArrivalNotice::Counts{.announced = 1, .late = 1}));
  ExpectAt(2000, 2300, 1500);
  ASSERT_TRUE(Look(1800).hold);
  Look(2380, At(1830));  // the switch had hardly begun
  EXPECT_EQ(notice_.counts(), (ArrivalNotice::Counts{.announced = 2, .late = 2}));
  EXPECT_EQ(budget_.left(), milliseconds(10));
}

// Whoever sleeps between two expectations learns of the work before them with the second.
TEST_F(ArrivalNoticeTest, WorkFromBeforeIsNotTheWorkExpected) {
  ExpectAt(1000, 1300, 100);
  EXPECT_EQ(Look(100, At(50)).next, At(780));
  EXPECT_TRUE(Look(800).hold);
}

TEST_F(ArrivalNoticeTest, NothingIsDoneWhileTheGpuIsThere) {
  ExpectAt(1000, 1300);
  EXPECT_FALSE(Look(800, std::nullopt, true).hold);
  EXPECT_EQ(budget_.left(), milliseconds(10));
}

TEST_F(ArrivalNoticeTest, WhatIsExpectedAtOnceIsNoticedAtOnce) {
  ExpectAt(50, 300);
  EXPECT_EQ(Look(0).hold, microseconds(380));
}

TEST_F(ArrivalNoticeTest, TimesOfThePastTheFarFutureAndBackwardsAreNone) {
  ExpectAt(-500, -100);
  ExpectAt(2'000'000, 2'000'100);
  ExpectAt(500, 400);
  notice_.OnExpected(TimePoint::min(), TimePoint::min(), At(0));
  notice_.OnExpected(TimePoint::max(), TimePoint::max(), At(0));
  EXPECT_EQ(notice_.counts(), ArrivalNotice::Counts());
  EXPECT_FALSE(Look(0).next);
}

TEST_F(ArrivalNoticeTest, NobodyHoldsTheGpuForLong) {
  notice_.OnExpected(TimePoint::min(), TimePoint::max(), At(0));
  EXPECT_EQ(Look(0).hold, microseconds(1080));
}

TEST_F(ArrivalNoticeTest, SeveralBecomeOneThatIsNotWide) {
  ExpectAt(1000, 1300);
  ExpectAt(900, 1200);
  ExpectAt(1100, 9000);
  EXPECT_EQ(Look(0).next, At(680));
  EXPECT_EQ(Look(680).hold, microseconds(1300));  // 900 + 1000 + 80 - 680
  EXPECT_EQ(notice_.counts().announced, 1u);
}

TEST_F(ArrivalNoticeTest, WhoSleptTooLongDoesNothing) {
  ExpectAt(1000, 1300);
  EXPECT_FALSE(Look(5000).hold);
  EXPECT_EQ(notice_.counts().late, 1u);
}

// Whatever a program says, whenever: best-effort work loses at most 5 % and what the budget begins with.
TEST_F(ArrivalNoticeTest, ALiarCostsItsShare) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 random(seed);
    ArrivalNotice notice;
    NoticeBudget budget;
    TimePoint now = At(0);
    const TimePoint begun = now;
    nanoseconds lost{0};
    std::optional<TimePoint> held_since;
    while (now - begun < seconds(20)) {
      const auto from = now + nanoseconds(static_cast<int64_t>(random() % 2'000'000) - 200'000);
      notice.OnExpected(from, from + nanoseconds(random() % 4'000'000), now);
      const auto step = notice.Advance(now, std::nullopt, false, budget);
      if (step.releases && held_since) lost += now - *held_since + microseconds(300);
      if (step.hold) held_since = now;
      // It is looked when it is time, or when the liar rings.
      const TimePoint next = step.next.value_or(now + microseconds(50));
      now = step.hold || random() % 2 == 0 ? next : std::min(next, now + microseconds(50));
    }
    EXPECT_LE(lost, seconds(20) / 20 + milliseconds(12)) << seed;
    EXPECT_GE(lost, seconds(20) / 20 - milliseconds(50)) << seed;
    EXPECT_GT(notice.counts().refused, 1000u) << seed;
  }
}

}  // namespace
}  // namespace tally::scheduler
