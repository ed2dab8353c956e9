#include "server/executor/session/sequencer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace tally::server {
namespace {

using Outcome = Sequencer::Outcome;

TEST(SequencerTest, ASequenceNumberIsGivenOnce) {
  Sequencer sequencer;
  const std::atomic<bool> stop{false};
  EXPECT_EQ(sequencer.Take(0, stop), Outcome::kMine);
  EXPECT_EQ(sequencer.Take(0, stop), Outcome::kNonsense);
  sequencer.Pass(0);
  EXPECT_EQ(sequencer.Take(0, stop), Outcome::kNonsense);
  EXPECT_EQ(sequencer.Take(1, stop), Outcome::kMine);
  EXPECT_EQ(sequencer.Take(UINT64_MAX, stop), Outcome::kNonsense);
}

TEST(SequencerTest, SkippedSequenceNumbersArePassedOver) {
  Sequencer sequencer;
  const std::atomic<bool> stop{false};
  EXPECT_EQ(sequencer.Skip(1), Outcome::kMine);
  EXPECT_EQ(sequencer.Skip(2), Outcome::kMine);
  EXPECT_EQ(sequencer.Skip(2), Outcome::kNonsense);
  EXPECT_EQ(sequencer.Take(0, stop), Outcome::kMine);
  sequencer.Pass(0);
  EXPECT_EQ(sequencer.Take(3, stop), Outcome::kMine);
  sequencer.Pass(3);
  EXPECT_EQ(sequencer.Skip(4), Outcome::kMine);
  EXPECT_EQ(sequencer.Skip(4), Outcome::kNonsense);
  EXPECT_EQ(sequencer.Take(5, stop), Outcome::kMine);
}

TEST(SequencerTest, BetweenRequestsItCanBeBorrowed) {
  Sequencer sequencer;
  const std::atomic<bool> stop{false};
  ASSERT_TRUE(sequencer.TryBorrow());
  EXPECT_FALSE(sequencer.TryBorrow());
  EXPECT_EQ(sequencer.Skip(0), Outcome::kMine) << "borrowing uses no number";
  sequencer.Return();
  EXPECT_EQ(sequencer.Take(0, stop), Outcome::kNonsense) << "skipped meanwhile";
  EXPECT_EQ(sequencer.Take(1, stop), Outcome::kMine);
  EXPECT_FALSE(sequencer.TryBorrow());
  EXPECT_EQ(sequencer.Skip(1), Outcome::kNonsense);
  sequencer.Pass(1);
  EXPECT_TRUE(sequencer.TryBorrow());
}

TEST(SequencerTest, WhoeverIsNextWaitsForTheBorrower) {
  Sequencer sequencer;
  const std::atomic<bool> stop{false};
  ASSERT_TRUE(sequencer.TryBorrow());
  std::atomic<bool> is_returned{false};
  std::thread next([&] {
    EXPECT_EQ(sequencer.Take(0, stop), Outcome::kMine);
    EXPECT_TRUE(is_returned);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // as a rule it sleeps by then, not only spins
  is_returned = true;
  sequencer.Return();
  next.join();
}

// Requests of several threads and borrowers, all at once: nobody has it together with somebody else.
TEST(SequencerTest, BorrowersAndRequestsExcludeOneAnother) {
  Sequencer sequencer;
  const std::atomic<bool> stop{false};
  std::atomic<int> num_holders{0};
  constexpr uint64_t kNumbers = 2000;
  const auto hold = [&] {
    EXPECT_EQ(num_holders.fetch_add(1), 0);
    num_holders.fetch_sub(1);
  };
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (uint64_t first = 0; first < 2; ++first) {
    threads.emplace_back([&, first] {
      for (uint64_t number = first; number < kNumbers; number += 2) {
        ASSERT_EQ(sequencer.Take(number, stop), Outcome::kMine);
        hold();
        sequencer.Pass(number);
      }
    });
  }
  std::thread borrower([&] {
    while (!is_over) {
      if (!sequencer.TryBorrow()) continue;
      hold();
      sequencer.Return();
    }
  });
  for (std::thread& thread : threads) thread.join();
  is_over = true;
  borrower.join();
}

TEST(SequencerTest, StopEndsAWait) {
  Sequencer sequencer;
  std::atomic<bool> stop{false};
  std::thread waiter([&] { EXPECT_EQ(sequencer.Take(7, stop), Outcome::kStopped); });
  stop = true;
  // The waiter may be between its look at `stop` and its sleep: Take's own check after announcing itself covers it.
  sequencer.WakeAll();
  waiter.join();
}

// Whatever the distribution of sequence numbers over channels, and whichever of them are skipped: order is kept, nobody
// hangs.
TEST(SequencerTest, OrderHoldsForRandomDistributions) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const size_t num_channels = 1 + random() % 6;
    constexpr uint64_t kSequenceNumbers = 400;
    std::vector<std::vector<uint64_t>> of_channel(num_channels);
    std::vector<bool> skipped(kSequenceNumbers);
    for (uint64_t sequence_number = 0; sequence_number < kSequenceNumbers; ++sequence_number) {
      of_channel[random() % num_channels].push_back(sequence_number);
      skipped[sequence_number] = random() % 5 == 0;
    }
    Sequencer sequencer;
    const std::atomic<bool> stop{false};
    std::vector<uint64_t> carried_out;  // guarded by the sequencer
    std::vector<std::thread> channels;
    for (const std::vector<uint64_t>& sequence_numbers : of_channel) {
      channels.emplace_back([&] {
        for (const uint64_t sequence_number : sequence_numbers) {
          if (skipped[sequence_number]) {
            EXPECT_EQ(sequencer.Skip(sequence_number), Outcome::kMine);
            continue;
          }
          ASSERT_EQ(sequencer.Take(sequence_number, stop), Outcome::kMine);
          carried_out.push_back(sequence_number);
          sequencer.Pass(sequence_number);
        }
      });
    }
    for (std::thread& channel : channels) channel.join();
    std::vector<uint64_t> expected;
    for (uint64_t sequence_number = 0; sequence_number < kSequenceNumbers; ++sequence_number) {
      if (!skipped[sequence_number]) expected.push_back(sequence_number);
    }
    ASSERT_EQ(carried_out, expected) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tally::server
