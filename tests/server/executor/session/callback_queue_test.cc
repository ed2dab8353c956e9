#include "server/executor/session/callback_queue.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

class CallbackQueueTest : public testing::Test {
 protected:
  void Post(uint64_t token) { queue_.Post(token, CUDA_SUCCESS, &word_, static_cast<uint32_t>(token)); }
  // Lets an hour pass.
  TimePoint Later() {
    clock_.Advance(std::chrono::hours(1));
    return clock_.Now();
  }

  ManualClock clock_;
  CallbackQueue queue_{clock_};
  std::atomic<uint32_t> word_{0};
  const std::atomic<bool> stop_{false};
};

TEST_F(CallbackQueueTest, WaitsFromTheFirstThatIsPostedUntilAllAreRun) {
  EXPECT_EQ(queue_.WaitsSince(), std::nullopt);
  const TimePoint first = Later();
  Post(1);
  Later();
  Post(2);
  EXPECT_EQ(queue_.WaitsSince(), first);
  const auto running = queue_.Next(stop_);  // being fetched is no progress
  EXPECT_EQ(queue_.WaitsSince(), first);
  const TimePoint finished = Later();
  queue_.Finish(running);
  EXPECT_EQ(word_, 1u);
  EXPECT_EQ(queue_.WaitsSince(), finished);
  queue_.Finish(queue_.Next(stop_));
  EXPECT_EQ(word_, 2u);
  EXPECT_EQ(queue_.WaitsSince(), std::nullopt);
}

TEST_F(CallbackQueueTest, WaitsForNothingOnceItIsClosed) {
  Post(1);
  queue_.Close();
  EXPECT_EQ(word_, 1u);
  EXPECT_EQ(queue_.WaitsSince(), std::nullopt);
  Post(2);
  EXPECT_EQ(word_, 2u);
  EXPECT_EQ(queue_.WaitsSince(), std::nullopt);
}

// The client is gone, and with it perhaps the memory of the word by the time its function is said to have run.
TEST_F(CallbackQueueTest, WhatRunsWhenItIsClosedIsReleasedThenAndNotAgain) {
  Post(1);
  const auto running = queue_.Next(stop_);
  EXPECT_EQ(word_, 0u);
  queue_.Close();
  EXPECT_EQ(word_, 1u);
  word_ = 77;
  queue_.Finish(running);
  EXPECT_EQ(word_, 77u);
}

}  // namespace
}  // namespace tally::server
