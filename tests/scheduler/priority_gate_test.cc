#include "scheduler/priority_gate.h"

#include <gtest/gtest.h>

#include <random>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

TEST(PriorityGate, IsOpenBeforeAnyHighPriorityWork) {
  PriorityGate gate({});
  EXPECT_TRUE(gate.IsOpen(TimePoint{}));
}

TEST(PriorityGate, ClosesAtOnceAndOpensAfterTheHoldOff) {
  PriorityGate gate({.min_hold_off = microseconds(20)});
  ManualClock clock;
  clock.Advance(microseconds(100));
  gate.OnHighPriorityBusy(clock.Now());
  EXPECT_FALSE(gate.OpensAt().has_value());
  clock.Advance(microseconds(30));
  gate.OnHighPriorityIdle(clock.Now());
  EXPECT_FALSE(gate.IsOpen(clock.Now()));
  clock.Advance(microseconds(19));
  EXPECT_FALSE(gate.IsOpen(clock.Now()));
  clock.Advance(microseconds(1));
  EXPECT_TRUE(gate.IsOpen(clock.Now()));
}

TEST(PriorityGate, HoldOffGrowsToCoverTheGapsInsideRequests) {
  PriorityGate gate({.min_hold_off = microseconds(20), .max_hold_off = microseconds(500)});
  ManualClock clock;
  for (int launch = 0; launch < 100; ++launch) {
    gate.OnHighPriorityBusy(clock.Now());
    clock.Advance(microseconds(10));
    gate.OnHighPriorityIdle(clock.Now());
    clock.Advance(microseconds(60));
  }
  EXPECT_GT(gate.hold_off(), microseconds(60)) << "the usual gap must not open the gate";
  EXPECT_LE(gate.hold_off(), microseconds(120));
}

// An objective moves them while the service runs, and its hold-off has long been learnt.
TEST(PriorityGate, NewBoundsHoldAtOnceForAHoldOffThatWasLearnt) {
  PriorityGate gate({.min_hold_off = microseconds(20), .max_hold_off = microseconds(500)});
  ManualClock clock;
  for (int launch = 0; launch < 100; ++launch) {
    gate.OnHighPriorityBusy(clock.Now());
    clock.Advance(microseconds(10));
    gate.OnHighPriorityIdle(clock.Now());
    clock.Advance(microseconds(60));
  }
  gate.OnHighPriorityBusy(clock.Now());
  gate.OnHighPriorityIdle(clock.Now());
  const TimePoint idle_since = clock.Now();
  ASSERT_GT(gate.hold_off(), microseconds(60));
  gate.SetHoldOffBounds(microseconds(10), microseconds(50));
  EXPECT_EQ(gate.hold_off(), microseconds(50));
  EXPECT_EQ(gate.OpensAt(), idle_since + microseconds(50));
  gate.SetHoldOffBounds(microseconds(200), microseconds(500));
  EXPECT_EQ(gate.OpensAt(), idle_since + microseconds(200));
  gate.SetHoldOffBounds(microseconds(900), microseconds(300));  // the upper one is what idle time may cost
  EXPECT_EQ(gate.hold_off(), microseconds(300));
  // What is learnt from then on stays within them.
  for (int launch = 0; launch < 100; ++launch) {
    gate.OnHighPriorityBusy(clock.Now());
    gate.OnHighPriorityIdle(clock.Now());
    clock.Advance(microseconds(1));
  }
  EXPECT_EQ(gate.hold_off(), microseconds(300));
}

TEST(PriorityGate, PausesBetweenRequestsDoNotMoveTheHoldOff) {
  PriorityGate gate({});
  ManualClock clock;
  for (int request = 0; request < 50; ++request) {
    gate.OnHighPriorityBusy(clock.Now());
    clock.Advance(microseconds(10));
    gate.OnHighPriorityIdle(clock.Now());
    clock.Advance(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(gate.hold_off(), PriorityGate::Config{}.min_hold_off);
}

TEST(PriorityGate, RepeatedReportsChangeNothing) {
  PriorityGate gate({});
  ManualClock clock;
  gate.OnHighPriorityIdle(clock.Now());
  EXPECT_TRUE(gate.IsOpen(clock.Now()));
  gate.OnHighPriorityBusy(clock.Now());
  clock.Advance(microseconds(5));
  gate.OnHighPriorityIdle(clock.Now());
  const auto opens_at = gate.OpensAt();
  clock.Advance(microseconds(5));
  gate.OnHighPriorityIdle(clock.Now());
  EXPECT_EQ(gate.OpensAt(), opens_at);
}

// Whatever the trace: never open while busy, never open before min_hold_off has
// passed, open at the latest max_hold_off after the last work, and the hold-off
// stays within its bounds.
TEST(PriorityGateProperty, HoldsForRandomTraces) {
  std::mt19937_64 random(20261121);
  for (int trace = 0; trace < 20000; ++trace) {
    const PriorityGate::Config config{.min_hold_off = microseconds(1 + random() % 50),
                                      .max_hold_off = microseconds(100 + random() % 1000),
                                      .longest_gap_inside_request = microseconds(random() % 3000)};
    PriorityGate gate(config);
    ManualClock clock;
    bool is_busy = false;
    bool was_busy = false;
    TimePoint idle_since{};
    for (int step = 0; step < 50; ++step) {
      clock.Advance(nanoseconds(random() % (step % 3 == 0 ? 2'000'000 : 50'000)));
      if (random() % 2 == 0) {
        gate.OnHighPriorityBusy(clock.Now());
        is_busy = was_busy = true;
      } else {
        gate.OnHighPriorityIdle(clock.Now());
        if (is_busy) idle_since = clock.Now();
        is_busy = false;
      }
      ASSERT_GE(gate.hold_off(), config.min_hold_off);
      ASSERT_LE(gate.hold_off(), config.max_hold_off);
      const bool is_open = gate.IsOpen(clock.Now());
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
