#include "scheduler/hold_off_rule.h"

#include <gtest/gtest.h>

#include <random>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

TEST(HoldOffRule, IsOpenBeforeAnyHighPriorityWork) {
  HoldOffRule rule({});
  EXPECT_TRUE(rule.IsOpen(TimePoint{}));
}

TEST(HoldOffRule, ClosesAtOnceAndOpensAfterTheHoldOff) {
  HoldOffRule rule({.min_hold_off = microseconds(20)});
  ManualClock clock;
  clock.Advance(microseconds(100));
  rule.OnHighPriorityBusy(clock.Now());
  EXPECT_FALSE(rule.OpensAt().has_value());
  clock.Advance(microseconds(30));
  rule.OnHighPriorityIdle(clock.Now());
  EXPECT_FALSE(rule.IsOpen(clock.Now()));
  clock.Advance(microseconds(19));
  EXPECT_FALSE(rule.IsOpen(clock.Now()));
  clock.Advance(microseconds(1));
  EXPECT_TRUE(rule.IsOpen(clock.Now()));
}

TEST(HoldOffRule, HoldOffGrowsToCoverTheGapsInsideRequests) {
  HoldOffRule rule({.min_hold_off = microseconds(20), .max_hold_off = microseconds(500)});
  ManualClock clock;
  for (int launch = 0; launch < 100; ++launch) {
    rule.OnHighPriorityBusy(clock.Now());
    clock.Advance(microseconds(10));
    rule.OnHighPriorityIdle(clock.Now());
    clock.Advance(microseconds(60));
  }
  EXPECT_GT(rule.hold_off(), microseconds(60)) << "the usual gap must not let anything go";
  EXPECT_LE(rule.hold_off(), microseconds(120));
}

// An objective moves them while the service runs, and its hold-off has long been learnt.
TEST(HoldOffRule, NewBoundsHoldAtOnceForAHoldOffThatWasLearnt) {
  HoldOffRule rule({.min_hold_off = microseconds(20), .max_hold_off = microseconds(500)});
  ManualClock clock;
  for (int launch = 0; launch < 100; ++launch) {
    rule.OnHighPriorityBusy(clock.Now());
    clock.Advance(microseconds(10));
    rule.OnHighPriorityIdle(clock.Now());
    clock.Advance(microseconds(60));
  }
  rule.OnHighPriorityBusy(clock.Now());
  rule.OnHighPriorityIdle(clock.Now());
  const TimePoint idle_since = clock.Now();
  ASSERT_GT(rule.hold_off(), microseconds(60));
  rule.SetHoldOffBounds(microseconds(10), microseconds(50));
  EXPECT_EQ(rule.hold_off(), microseconds(50));
  EXPECT_EQ(rule.OpensAt(), idle_since + microseconds(50));
  rule.SetHoldOffBounds(microseconds(200), microseconds(500));
  EXPECT_EQ(rule.OpensAt(), idle_since + microseconds(200));
  rule.SetHoldOffBounds(microseconds(900), microseconds(300));  // the upper one is what idle time may cost
  EXPECT_EQ(rule.hold_off(), microseconds(300));
  // What is learnt from then on stays within them.
  for (int launch = 0; launch < 100; ++launch) {
    rule.OnHighPriorityBusy(clock.Now());
    rule.OnHighPriorityIdle(clock.Now());
    clock.Advance(microseconds(1));
  }
  EXPECT_EQ(rule.hold_off(), microseconds(300));
}

TEST(HoldOffRule, PausesBetweenRequestsDoNotMoveTheHoldOff) {
  HoldOffRule rule({});
  ManualClock clock;
  for (int request = 0; request < 50; ++request) {
    rule.OnHighPriorityBusy(clock.Now());
    clock.Advance(microseconds(10));
    rule.OnHighPriorityIdle(clock.Now());
    clock.Advance(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(rule.hold_off(), HoldOffRule::Config{}.min_hold_off);
}

TEST(HoldOffRule, RepeatedReportsChangeNothing) {
  HoldOffRule rule({});
  ManualClock clock;
  rule.OnHighPriorityIdle(clock.Now());
  EXPECT_TRUE(rule.IsOpen(clock.Now()));
  rule.OnHighPriorityBusy(clock.Now());
  clock.Advance(microseconds(5));
  rule.OnHighPriorityIdle(clock.Now());
  const auto opens_at = rule.OpensAt();
  clock.Advance(microseconds(5));
  rule.OnHighPriorityIdle(clock.Now());
  EXPECT_EQ(rule.OpensAt(), opens_at);
}

// Whatever the trace: never open while busy, never open before min_hold_off has
// passed, open at the latest max_hold_off after the last work, and the hold-off
// stays within its bounds.
TEST(HoldOffRuleProperty, HoldsForRandomTraces) {
  std::mt19937_64 random(20261121);
  for (int trace = 0; trace < 20000; ++trace) {
    const HoldOffRule::Config config{.min_hold_off = microseconds(1 + random() % 50),
                                     .max_hold_off = microseconds(100 + random() % 1000),
                                     .longest_gap_inside_request = microseconds(random() % 3000)};
    HoldOffRule rule(config);
    ManualClock clock;
    bool is_busy = false;
    bool was_busy = false;
    TimePoint idle_since{};
    for (int step = 0; step < 50; ++step) {
      clock.Advance(nanoseconds(random() % (step % 3 == 0 ? 2'000'000 : 50'000)));
      if (random() % 2 == 0) {
        rule.OnHighPriorityBusy(clock.Now());
        is_busy = was_busy = true;
      } else {
        rule.OnHighPriorityIdle(clock.Now());
        if (is_busy) idle_since = clock.Now();
        is_busy = false;
      }
      ASSERT_GE(rule.hold_off(), config.min_hold_off);
      ASSERT_LE(rule.hold_off(), config.max_hold_off);
      const bool is_open = rule.IsOpen(clock.Now());
      if (is_busy) {
        ASSERT_FALSE(is_open);
      } else if (was_busy) {
        const auto idle_for = clock.Now() - idle_since;
        if (idle_for < config.min_hold_off) {
          ASSERT_FALSE(is_open);
        }
        if (idle_for >= config.max_hold_off) {
          ASSERT_TRUE(is_open);
        }
      } else {
        ASSERT_TRUE(is_open);
      }
    }
  }
}

}  // namespace
}  // namespace tally::scheduler
