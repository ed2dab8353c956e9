#include "server/executor/dispatch/launch_timer.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/server/executor/dispatch/scripted_gpu.h"
#include "tests/server/executor/fakes/scripted_watch.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;

class LaunchTimerTest : public testing::Test {
 protected:
  LaunchTimerTest() { ScriptedGpu::Reset(); }
  void Time(CUstream stream = nullptr) {
    auto timing = timer_.Begin(stream);
    ASSERT_TRUE(timing);
    timing->End(stream, [&](auto duration) { durations_.push_back(duration); });
  }
  static CUstream Stream(uintptr_t number) { return reinterpret_cast<CUstream>(number); }

  const DriverTable table_ = ScriptedGpu::Table();
  CompletionSource completions_{table_};
  ScriptedWatch watch_;
  LaunchTimer timer_{completions_, 0, &watch_};
  std::vector<std::chrono::nanoseconds> durations_;
};

TEST_F(LaunchTimerTest, ReportsWhatLiesBetweenTheEvents) {
  ScriptedGpu::SetDuration(0.5f);
  ScriptedGpu::Stop();
  Time();
  timer_.Collect();
  EXPECT_TRUE(durations_.empty()) << "not over yet";
  ScriptedGpu::Go();
  timer_.Collect();
  EXPECT_EQ(durations_, std::vector<std::chrono::nanoseconds>{microseconds(500)});
}

TEST_F(LaunchTimerTest, ForgetsWhatHighPriorityWorkDisturbed) {
  Time();
  watch_.SetClosed(true);
  EXPECT_FALSE(timer_.Begin(nullptr)) << "nothing is timed while it runs";
  watch_.SetClosed(false);
  timer_.Collect();
  EXPECT_TRUE(durations_.empty());
  Time();
  timer_.Collect();
  EXPECT_EQ(durations_.size(), 1u);
}

TEST_F(LaunchTimerTest, WhoeverWantsThemIsToldOfDisturbedTimesToo) {
  int num_quiet = 0, num_disturbed = 0;
  const auto time = [&] {
    return timer_.BeginSample(
        nullptr, [&](auto) { ++num_quiet; }, [&](auto) { ++num_disturbed; });
  };
  const uint32_t before = time();
  watch_.SetClosed(true);
  const uint32_t meanwhile = time();
  watch_.SetClosed(false);
  const uint32_t afterwards = time();
  for (const uint32_t sample : {before, meanwhile, afterwards}) timer_.EndSample(sample, nullptr);
  timer_.Collect();
  EXPECT_EQ(num_disturbed, 2);
  EXPECT_EQ(num_quiet, 1);
}

TEST_F(LaunchTimerTest, WhatIsGivenUpOnLeavesNothing) {
  const uint64_t before = ScriptedGpu::NumEvents();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(timer_.Begin(nullptr));
  Time();
  timer_.Collect();
  EXPECT_EQ(durations_.size(), 1u);
  EXPECT_LE(ScriptedGpu::NumEvents() - before, 2u);
}

TEST_F(LaunchTimerTest, HowManyAreInProgressIsBounded) {
  int num_begun = 0;
  ScriptedGpu::Stop();
  for (; num_begun < 10'000; ++num_begun) {
    auto timing = timer_.Begin(nullptr);
    if (!timing) break;
    timing->End(nullptr, [&](auto duration) { durations_.push_back(duration); });
  }
  EXPECT_LT(num_begun, 10'000);
  ScriptedGpu::Go();
  timer_.Collect();
  EXPECT_EQ(durations_.size(), static_cast<size_t>(num_begun));
}

TEST_F(LaunchTimerTest, AStreamThatStandsStillHoldsUpNoOther) {
  ScriptedGpu::Stop();
  Time(Stream(1));
  Time(Stream(2));
  for (int i = 0; i < 2; ++i) ScriptedGpu::EndOne(Stream(2));
  timer_.Collect();
  EXPECT_EQ(durations_.size(), 1u);
}

TEST_F(LaunchTimerTest, TimesOfALostContextAreNone) {
  Time();
  ScriptedGpu::Fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  timer_.Collect();
  EXPECT_TRUE(durations_.empty());
  EXPECT_FALSE(timer_.Begin(nullptr));
}

}  // namespace
}  // namespace tally::server
