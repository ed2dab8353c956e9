#include "server/executor/issue/launch_timer.h"

#include <thread>
#include <vector>

#include "tests/server/executor/fakes/scripted_watch.h"
#include "tests/server/executor/issue/sim_device.h"

namespace tally::server {
namespace {

using std::chrono::milliseconds;

class LaunchTimerTest : public SimDeviceTest {
 protected:
  void SetUp() override {
    SimDeviceTest::SetUp();
    stream_ = Stream();
    word_ = ZeroedMemory(4);
    timer_.emplace(driver_, 0, &watch_);
  }
  void TearDown() override {
    timer_.reset();
    SimDeviceTest::TearDown();
  }
  // Work on the stream that takes until Release().
  void Hold() { ASSERT_EQ(driver_.cuStreamWaitValue32_v2(stream_, word_, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS); }
  void Release() {
    ASSERT_EQ(driver_.cuMemsetD32Async(word_, 1, 1, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(driver_.cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }
  void Time() {
    auto timing = timer_->Begin(stream_);
    ASSERT_TRUE(timing);
    Hold();
    timing->End(stream_, [&](auto duration) { durations_.push_back(duration); });
  }

  ScriptedWatch watch_;
  CUstream stream_ = nullptr;
  CUdeviceptr word_ = 0;
  std::optional<LaunchTimer> timer_;
  std::vector<std::chrono::nanoseconds> durations_;
};

TEST_F(LaunchTimerTest, ReportsWhatLiesBetweenTheEvents) {
  Time();
  timer_->Collect();
  EXPECT_TRUE(durations_.empty()) << "not over yet";
  std::this_thread::sleep_for(milliseconds(20));
  Release();
  timer_->Collect();
  ASSERT_EQ(durations_.size(), 1u);
  EXPECT_GE(durations_[0], milliseconds(15));
}

TEST_F(LaunchTimerTest, ForgetsWhatHighPriorityWorkDisturbed) {
  Time();
  watch_.SetClosed(true);
  EXPECT_FALSE(timer_->Begin(stream_)) << "nothing is timed while it runs";
  watch_.SetClosed(false);
  Release();
  timer_->Collect();
  EXPECT_TRUE(durations_.empty());
  Time();
  Release();
  timer_->Collect();
  EXPECT_EQ(durations_.size(), 1u);
}

TEST_F(LaunchTimerTest, WhatIsGivenUpOnLeavesNothing) {
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(timer_->Begin(stream_));
  Time();
  Release();
  timer_->Collect();
  EXPECT_EQ(durations_.size(), 1u);
}

TEST_F(LaunchTimerTest, HowManyAreInProgressIsBounded) {
  int num_begun = 0;
  Hold();
  for (; num_begun < 10'000; ++num_begun) {
    auto timing = timer_->Begin(stream_);
    if (!timing) break;
    timing->End(stream_, [&](auto duration) { durations_.push_back(duration); });
  }
  EXPECT_LT(num_begun, 10'000);
  Release();
  timer_->Collect();
  EXPECT_EQ(durations_.size(), static_cast<size_t>(num_begun));
}

}  // namespace
}  // namespace tally::server
