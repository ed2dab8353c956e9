#include "scheduler/look_ahead.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

TEST(LookAhead, StartsWithOne) { EXPECT_EQ(LookAhead({}).depth(), 1u); }

TEST(LookAhead, GrowsToTheBoundOnShortKernels) {
  LookAhead look_ahead({.target_drain = microseconds(500), .max_depth = 16});
  for (int i = 0; i < 100; ++i) look_ahead.OnDrained(microseconds(5));
  EXPECT_EQ(look_ahead.depth(), 16u);
}

TEST(LookAhead, NeverFallsBelowOne) {
  LookAhead look_ahead({});
  for (int i = 0; i < 10; ++i) look_ahead.OnDrained(std::chrono::seconds(1));
  EXPECT_EQ(look_ahead.depth(), 1u);
}

// Between half the target and the target nothing changes: a depth that is right must not swing.
TEST(LookAhead, KeepsADepthThatDrainsInTime) {
  LookAhead look_ahead({.target_drain = microseconds(500), .max_depth = 64});
  for (int i = 0; i < 9; ++i) look_ahead.OnDrained(microseconds(100));
  ASSERT_EQ(look_ahead.depth(), 10u);
  for (const microseconds drain : {microseconds(250), microseconds(300), microseconds(499), microseconds(500)}) {
    look_ahead.OnDrained(drain);
    EXPECT_EQ(look_ahead.depth(), 10u) << drain.count();
  }
  look_ahead.OnDrained(microseconds(250) - nanoseconds(1));
  EXPECT_EQ(look_ahead.depth(), 11u);
  look_ahead.OnDrained(microseconds(500) + nanoseconds(1));
  EXPECT_EQ(look_ahead.depth(), 5u);
  look_ahead.SetTargetDrain(microseconds(1000));
  look_ahead.OnDrained(microseconds(500));
  EXPECT_EQ(look_ahead.depth(), 5u);
  look_ahead.OnDrained(microseconds(499));
  EXPECT_EQ(look_ahead.depth(), 6u);
}

// A queue served in order, kernels of one length: after it has settled the drain time stays near the target.
TEST(LookAheadProperty, SettlesNearTheTargetForAnyKernelLength) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 500; ++round) {
    const nanoseconds target = microseconds(200 + random() % 800);
    LookAhead look_ahead({.target_drain = target, .max_depth = 1u << 20});
    const nanoseconds kernel = nanoseconds(1'000 + random() % 400'000);
    std::deque<nanoseconds> dispatched;  // times of dispatch of what is in flight
    nanoseconds now{0};
    nanoseconds worst_settled{0};
    for (int launch = 0; launch < 4000; ++launch) {
      while (dispatched.size() < look_ahead.depth()) dispatched.push_back(now);
      now += kernel;
      const nanoseconds drain_time = now - dispatched.front();
      dispatched.pop_front();
      look_ahead.OnDrained(drain_time);
      if (launch > 2000) worst_settled = std::max(worst_settled, drain_time);
    }
    // One kernel cannot be cut, and the increase overshoots by what was in flight when it was measured.
    EXPECT_LE(worst_settled, 3 * target + kernel) << "kernel " << kernel.count() << " target " << target.count();
  }
}

}  // namespace
}  // namespace tally::scheduler
