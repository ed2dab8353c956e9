#include "scheduler/fair_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(FairQueue, IsEmptyUntilSomebodyHasWork) {
  FairQueue queue({});
  queue.Add(0, 100);
  EXPECT_FALSE(queue.Front().has_value());
  queue.Join(0);
  EXPECT_EQ(queue.Front(), 0u);
  queue.Leave(0);
  EXPECT_FALSE(queue.Front().has_value());
}

TEST(FairQueue, MembersOfEqualWeightTakeTurns) {
  FairQueue queue({});
  for (uint32_t member : {0u, 1u, 2u}) {
    queue.Add(member, 100);
    queue.Join(member);
  }
  std::vector<uint32_t> order;
  for (int i = 0; i < 6; ++i) {
    order.push_back(*queue.Front());
    queue.Charge(order.back(), microseconds(100));
  }
  EXPECT_EQ(order, (std::vector<uint32_t>{0, 1, 2, 0, 1, 2}));
}

TEST(FairQueue, ALongLaunchIsPaidOffInTime) {
  FairQueue queue({});
  queue.Add(0, 100);
  queue.Add(1, 100);
  queue.Join(0);
  queue.Join(1);
  queue.Charge(0, milliseconds(300));  // 3000 rounds: farther than the circle reaches
  int64_t others = 0;
  while (queue.Front() == 1u) {
    queue.Charge(1, microseconds(50));
    others += 50;
  }
  EXPECT_NEAR(static_cast<double>(others), 300'000, 200);
}

TEST(FairQueue, WhoPaidTooMuchGetsItBack) {
  FairQueue queue({});
  queue.Add(0, 100);
  queue.Add(1, 100);
  queue.Join(0);
  queue.Join(1);
  queue.Charge(0, milliseconds(10));
  EXPECT_EQ(queue.Front(), 1u);
  queue.Charge(0, -milliseconds(10));
  queue.Charge(1, microseconds(100));
  EXPECT_EQ(queue.Front(), 0u) << "all its credit of the round is there again";
  queue.Charge(0, microseconds(100));
  EXPECT_EQ(queue.Front(), 1u);
}

TEST(FairQueue, CreditIsNotHoardedAndDebtIsNotForgotten) {
  FairQueue queue({});
  for (uint32_t member : {0u, 1u, 2u}) queue.Add(member, 100);
  queue.Join(1);
  queue.Join(2);
  queue.Charge(2, milliseconds(5));
  queue.Leave(2);
  for (int i = 0; i < 40; ++i) queue.Charge(*queue.Front(), microseconds(100));  // 4 ms pass, member 0 is idle
  queue.Join(0);
  queue.Join(2);
  // Member 0 gets its turns from now on and nothing for the past; member 2 waits until its 5 ms are paid off.
  int64_t used[3] = {};
  while (used[0] + used[1] + used[2] < 1600) {
    const uint32_t member = *queue.Front();
    queue.Charge(member, microseconds(100));
    used[member] += 100;
  }
  EXPECT_EQ(used[0], 800);
  EXPECT_EQ(used[1], 800);
  EXPECT_EQ(used[2], 0);
}

TEST(FairQueue, WhoIsBackBeforeTheRoundEndsGoesOn) {
  FairQueue queue({});
  queue.Add(0, 300);
  queue.Add(1, 100);
  int used[2] = {};
  // Both have one launch at a time: they join, are chosen, leave, and are back before the next choice.
  for (int i = 0; i < 4000; ++i) {
    queue.Join(0);
    queue.Join(1);
    const uint32_t member = *queue.Front();
    queue.Leave(member);
    queue.Charge(member, microseconds(20));
    ++used[member];
  }
  EXPECT_NEAR(used[0] / double(used[1]), 3.0, 0.02);
}

// Whatever the weights, the durations, and how wrong the estimates are: between members that have work all the time,
// used time over weight differs by at most what the header says, and wrong estimates by no more than what is in flight.
TEST(FairQueue, WhoIsExpectedKeepsItsPlaceUntilThen) {
  FairQueue queue({});
  queue.Add(0, 300);
  queue.Add(1, 100);
  queue.Join(0);
  queue.Join(1);
  const TimePoint now{milliseconds(1)};
  queue.LeaveUntil(0, now + microseconds(50));
  EXPECT_EQ(queue.num_joined(), 1u);
  EXPECT_EQ(queue.Next(now, true), 0u);
  EXPECT_TRUE(queue.IsExpected(0));
  EXPECT_EQ(queue.NextOfRound(0), 1u);
  queue.Charge(1, microseconds(100));  // it has had its part of this round
  EXPECT_FALSE(queue.NextOfRound(0).has_value());
  queue.Join(0);
  EXPECT_FALSE(queue.IsExpected(0));
  EXPECT_EQ(queue.Next(now, true), 0u);
  queue.LeaveUntil(0, now + microseconds(50));
  EXPECT_EQ(queue.Next(now + microseconds(49), true), 0u);
  EXPECT_EQ(queue.Next(now + microseconds(50), true), 1u) << "it is not waited for any longer";
  EXPECT_FALSE(queue.IsExpected(0));
}

// What the caller may have to wait for: the head of the round, if it has nothing to run yet.
TEST(FairQueue, SaysUntilWhenItsFirstIsOnlyExpected) {
  FairQueue queue({});
  for (uint32_t member : {0u, 1u}) {
    queue.Add(member, 100);
    queue.Join(member);
  }
  const TimePoint now{milliseconds(1)};
  EXPECT_EQ(queue.NextReady(now, true), 0u);
  EXPECT_FALSE(queue.waits_until().has_value()) << "it has something to run";
  queue.LeaveUntil(0, now + microseconds(50));
  EXPECT_EQ(queue.NextReady(now, true), 1u);
  EXPECT_EQ(queue.waits_until(), now + microseconds(50));
  queue.Charge(1, microseconds(100));  // its next turn is of a later round: nobody may go before the first is back
  EXPECT_FALSE(queue.NextReady(now, true).has_value());
  EXPECT_EQ(queue.waits_until(), now + microseconds(50));
  EXPECT_EQ(queue.NextReady(now + microseconds(50), true), 1u);
  EXPECT_FALSE(queue.waits_until().has_value()) << "it is expected no longer";
  queue.Join(0);
  queue.LeaveUntil(0, now + microseconds(90));
  EXPECT_EQ(queue.NextReady(now + microseconds(60), false), 1u);
  EXPECT_FALSE(queue.waits_until().has_value()) << "who cannot wait is told of nobody";
}

// Whoever asks before anything can go must not end the round for those who come in between.
TEST(FairQueue, AskingDecidesNothing) {
  FairQueue queue({});
  queue.Add(0, 300);
  queue.Add(1, 100);
  std::array<int, 2> num_turns{};
  for (uint32_t member : {0u, 1u}) queue.Join(member);
  for (int i = 0; i < 400; ++i) {
    const uint32_t turn = *queue.Next(TimePoint{}, false);
    queue.Begin(turn);
    queue.Leave(turn);
    queue.Charge(turn, milliseconds(8));
    EXPECT_NE(queue.Next(TimePoint{}, false), turn);  // the other one waits, but there is no room yet
    queue.Join(turn);
    ++num_turns[turn];
  }
  EXPECT_NEAR(num_turns[0], 300, 2);
}

TEST(FairQueue, NobodyIsExpectedWhereTheCallerCannotWait) {
  FairQueue queue({});
  queue.Add(0, 100);
  queue.Join(0);
  queue.LeaveUntil(0, TimePoint::max());
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.Next(TimePoint{}, true).has_value());
  queue.Add(1, 100);
  queue.Join(1);
  EXPECT_EQ(queue.Next(TimePoint{}, false), 1u);
  queue.Remove(0);
  queue.Remove(1);
  EXPECT_TRUE(queue.empty());
}

// Programs that launch one short thing at a time and are back in a moment, as an executor's channels do.
TEST(FairQueueProperty, WhoLaunchesOneThingAtATimeGetsItsShareIfItIsExpected) {
  std::mt19937 random(5);
  FairQueue queue({});
  const std::array<uint32_t, 3> weights = {100, 300, 600};
  for (uint32_t member = 0; member < 3; ++member) queue.Add(member, weights[member]);
  std::array<TimePoint, 3> back_at{};
  std::array<std::chrono::nanoseconds, 3> used{};
  TimePoint now{milliseconds(1)};
  for (int step = 0; step < 200'000; ++step, now += microseconds(2)) {
    for (uint32_t member = 0; member < 3; ++member) {
      if (back_at[member] <= now) queue.Join(member);
    }
    const std::optional<uint32_t> next = queue.NextReady(now, true);
    if (!next) continue;
    const auto time = microseconds(5 + random() % 20);
    queue.Begin(*next);
    queue.Charge(*next, time);
    queue.LeaveUntil(*next, now + microseconds(100));
    used[*next] += time;
    back_at[*next] = now + microseconds(4 + random() % 20);
  }
  const auto total = static_cast<double>((used[0] + used[1] + used[2]).count());
  for (uint32_t member = 0; member < 3; ++member) {
    EXPECT_NEAR(static_cast<double>(used[member].count()) / total, weights[member] / 1000.0, 0.02) << member;
  }
}

TEST(FairQueueProperty, SharesByWeight) {
  std::mt19937_64 random(1);
  for (int trace = 0; trace < 3000; ++trace) {
    const uint32_t num_members = 2 + random() % 8;
    const int64_t longest = 1000 << (random() % 12);
    const bool is_estimated = random() % 2 == 0;
    FairQueue queue({});
    std::vector<uint32_t> weights(num_members);
    std::vector<int64_t> used(num_members);
    for (uint32_t i = 0; i < num_members; ++i) {
      weights[i] = static_cast<uint32_t>(1 + random() % 1000);
      queue.Add(i, weights[i]);
      queue.Join(i);
    }
    for (int step = 0; step < 400; ++step) {
      const uint32_t member = *queue.Front();
      const auto time = static_cast<int64_t>(1 + random() % static_cast<uint64_t>(longest));
      const int64_t estimate =
          is_estimated ? static_cast<int64_t>(random() % static_cast<uint64_t>(2 * longest)) : time;
      queue.Charge(member, Nanoseconds(estimate));
      queue.Charge(member, Nanoseconds(time - estimate));
      used[member] += time;
      if (random() % 16 == 0) queue.SetWeight(member, weights[member]);
    }
    for (uint32_t i = 0; i < num_members; ++i) {
      for (uint32_t j = 0; j < i; ++j) {
        const double difference = std::abs(double(used[i]) / weights[i] - double(used[j]) / weights[j]);
        const double bound = 1000 + double(longest) / weights[i] + double(longest) / weights[j] + 1000;
        ASSERT_LE(difference, bound) << "trace " << trace << " members " << i << ", " << j;
      }
    }
  }
}

// Joining, leaving, charging, weights and removal in any order: whoever is at the front has joined, and nobody who has
// joined is lost.
TEST(FairQueueProperty, NobodyIsLost) {
  std::mt19937_64 random(2);
  for (int trace = 0; trace < 2000; ++trace) {
    FairQueue queue({});
    std::vector<bool> joined(12, false);
    for (uint32_t i = 0; i < 12; ++i) queue.Add(i, static_cast<uint32_t>(1 + random() % kMaxWeight));
    for (int step = 0; step < 200; ++step) {
      const auto member = static_cast<uint32_t>(random() % 12);
      switch (random() % 5) {
        case 0:
          queue.Join(member);
          joined[member] = true;
          break;
        case 1:
          queue.Leave(member);
          joined[member] = false;
          break;
        case 2:
          queue.SetWeight(member, static_cast<uint32_t>(1 + random() % kMaxWeight));
          break;
        default:
          queue.Charge(member, Nanoseconds(static_cast<int64_t>(random() % 2'000'000'000) - 500'000'000));
      }
      const auto front = queue.Front();
      const auto num_joined = static_cast<uint32_t>(std::count(joined.begin(), joined.end(), true));
      ASSERT_EQ(queue.num_joined(), num_joined);
      ASSERT_EQ(front.has_value(), num_joined != 0);
      if (front) {
        ASSERT_TRUE(joined[*front]);
      }
    }
    // Everybody gets a turn in the end.
    std::vector<bool> served(12, false);
    for (int turn = 0; turn < 12 && !queue.empty(); ++turn) {
      const uint32_t member = *queue.Front();
      served[member] = true;
      queue.Leave(member);
    }
    ASSERT_EQ(served, joined);
  }
}

}  // namespace
}  // namespace tally::scheduler
