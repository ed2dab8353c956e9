#include "scheduler/look_ahead.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <utility>
#include <vector>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// One that was dispatched takes so long.
void Drain(LookAhead& look_ahead, nanoseconds drain_time) {
  look_ahead.OnDrained(look_ahead.OnDispatched(), drain_time);
}

TEST(LookAhead, StartsWithOne) { EXPECT_EQ(LookAhead({}).depth(), 1u); }

TEST(LookAhead, GrowsToTheBoundOnShortKernels) {
  LookAhead look_ahead({.target_drain = microseconds(500), .max_depth = 16});
  for (int i = 0; i < 100; ++i) Drain(look_ahead, microseconds(5));
  EXPECT_EQ(look_ahead.depth(), 16u);
}

TEST(LookAhead, NeverFallsBelowOne) {
  LookAhead look_ahead({});
  for (int i = 0; i < 10; ++i) Drain(look_ahead, std::chrono::seconds(1));
  EXPECT_EQ(look_ahead.depth(), 1u);
}

// Between half the target and the target nothing changes: a depth that is right must not swing.
TEST(LookAhead, KeepsADepthThatDrainsInTime) {
  LookAhead look_ahead({.target_drain = microseconds(500), .max_depth = 64});
  for (int i = 0; i < 9; ++i) Drain(look_ahead, microseconds(100));
  ASSERT_EQ(look_ahead.depth(), 10u);
  for (const microseconds drain : {microseconds(250), microseconds(300), microseconds(499), microseconds(500)}) {
    Drain(look_ahead, drain);
    EXPECT_EQ(look_ahead.depth(), 10u) << drain.count();
  }
  Drain(look_ahead, microseconds(250) - nanoseconds(1));
  EXPECT_EQ(look_ahead.depth(), 11u);
  Drain(look_ahead, microseconds(500) + nanoseconds(1));
  EXPECT_EQ(look_ahead.depth(), 5u);
  look_ahead.SetTargetDrain(microseconds(1000));
  Drain(look_ahead, microseconds(500));
  EXPECT_EQ(look_ahead.depth(), 5u);
  Drain(look_ahead, microseconds(499));
  EXPECT_EQ(look_ahead.depth(), 6u);
}

TEST(LookAhead, WhatIsGivenUpTakesNobodysPlace) {
  LookAhead look_ahead({.target_drain = microseconds(500)});
  for (int i = 0; i < 3; ++i) Drain(look_ahead, microseconds(1));
  std::vector<uint64_t> given_up;
  while (look_ahead.HasRoom()) given_up.push_back(look_ahead.OnDispatched());
  EXPECT_EQ(given_up.size(), 4u);
  look_ahead.GiveUp(std::chrono::seconds(1));
  EXPECT_EQ(look_ahead.depth(), 2u) << "as after one that drained slowly";
  EXPECT_TRUE(look_ahead.HasRoom());
  look_ahead.OnDispatched();
  look_ahead.OnDispatched();
  EXPECT_FALSE(look_ahead.HasRoom());
  for (const uint64_t round : given_up) look_ahead.OnDrained(round, microseconds(1));
  EXPECT_FALSE(look_ahead.HasRoom()) << "nor do they give back one that they no longer have";
  EXPECT_EQ(look_ahead.depth(), 2u);
}

// A queue served in order, kernels of one length: after it has settled the drain time stays near the target.
TEST(LookAheadProperty, SettlesNearTheTargetForAnyKernelLength) {
  std::mt19937_64 random(7);
  for (int repeat = 0; repeat < 500; ++repeat) {
    const nanoseconds target = microseconds(200 + random() % 800);
    LookAhead look_ahead({.target_drain = target, .max_depth = 1u << 20});
    const nanoseconds kernel = nanoseconds(1'000 + random() % 400'000);
    std::deque<std::pair<nanoseconds, uint64_t>> dispatched;  // what is in flight: when, in which round
    nanoseconds now{0};
    nanoseconds worst_settled{0};
    for (int launch = 0; launch < 4000; ++launch) {
      while (look_ahead.HasRoom()) dispatched.emplace_back(now, look_ahead.OnDispatched());
      now += kernel;
      const auto [dispatched_at, round] = dispatched.front();
      const nanoseconds drain_time = now - dispatched_at;
      dispatched.pop_front();
      look_ahead.OnDrained(round, drain_time);
      if (launch > 2000) worst_settled = std::max(worst_settled, drain_time);
    }
    // One kernel cannot be cut, and the increase overshoots by what was in flight when it was measured.
    EXPECT_LE(worst_settled, 3 * target + kernel) << "kernel " << kernel.count() << " target " << target.count();
  }
}

}  // namespace
}  // namespace tally::scheduler
