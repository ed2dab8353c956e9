#include "server/executor/session/turn_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace tally::server {
namespace {

using Outcome = TurnOrder::Outcome;

TEST(TurnOrderTest, ATicketIsGivenOnce) {
  TurnOrder turns;
  const std::atomic<bool> stop{false};
  EXPECT_EQ(turns.Take(0, stop), Outcome::kMine);
  EXPECT_EQ(turns.Take(0, stop), Outcome::kNonsense);
  turns.Pass(0);
  EXPECT_EQ(turns.Take(0, stop), Outcome::kNonsense);
  EXPECT_EQ(turns.Take(1, stop), Outcome::kMine);
  EXPECT_EQ(turns.Take(UINT64_MAX, stop), Outcome::kNonsense);
}

TEST(TurnOrderTest, SkippedTicketsArePassedOver) {
  TurnOrder turns;
  const std::atomic<bool> stop{false};
  EXPECT_EQ(turns.Skip(1), Outcome::kMine);
  EXPECT_EQ(turns.Skip(2), Outcome::kMine);
  EXPECT_EQ(turns.Skip(2), Outcome::kNonsense);
  EXPECT_EQ(turns.Take(0, stop), Outcome::kMine);
  turns.Pass(0);
  EXPECT_EQ(turns.Take(3, stop), Outcome::kMine);
  turns.Pass(3);
  EXPECT_EQ(turns.Skip(4), Outcome::kMine);
  EXPECT_EQ(turns.Skip(4), Outcome::kNonsense);
  EXPECT_EQ(turns.Take(5, stop), Outcome::kMine);
}

TEST(TurnOrderTest, StopEndsAWait) {
  TurnOrder turns;
  std::atomic<bool> stop{false};
  std::thread waiter([&] { EXPECT_EQ(turns.Take(7, stop), Outcome::kStopped); });
  stop = true;
  // The waiter may be between its look at `stop` and its sleep: Take's own check after announcing itself covers it.
  turns.WakeAll();
  waiter.join();
}

// Whatever the distribution of tickets over lanes, and whichever of them are skipped: order is kept, nobody hangs.
TEST(TurnOrderTest, OrderHoldsForRandomDistributions) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const size_t num_lanes = 1 + random() % 6;
    constexpr uint64_t kTickets = 400;
    std::vector<std::vector<uint64_t>> of_lane(num_lanes);
    std::vector<bool> skipped(kTickets);
    for (uint64_t ticket = 0; ticket < kTickets; ++ticket) {
      of_lane[random() % num_lanes].push_back(ticket);
      skipped[ticket] = random() % 5 == 0;
    }
    TurnOrder turns;
    const std::atomic<bool> stop{false};
    std::vector<uint64_t> carried_out;  // guarded by the turn
    std::vector<std::thread> lanes;
    for (const std::vector<uint64_t>& tickets : of_lane) {
      lanes.emplace_back([&] {
        for (const uint64_t ticket : tickets) {
          if (skipped[ticket]) {
            EXPECT_EQ(turns.Skip(ticket), Outcome::kMine);
            continue;
          }
          ASSERT_EQ(turns.Take(ticket, stop), Outcome::kMine);
          carried_out.push_back(ticket);
          turns.Pass(ticket);
        }
      });
    }
    for (std::thread& lane : lanes) lane.join();
    std::vector<uint64_t> expected;
    for (uint64_t ticket = 0; ticket < kTickets; ++ticket) {
      if (!skipped[ticket]) expected.push_back(ticket);
    }
    ASSERT_EQ(carried_out, expected) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tally::server
