#include "server/executor/dispatch/launch_costs.h"

#include <gtest/gtest.h>

#include "tests/server/executor/dispatch/scripted_gpu.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;

class QuietWatch final : public HighPriorityWatch {
 public:
  bool IsClosed(int) override { return false; }
  bool IsHighPriorityPresent(int) override { return false; }
  TimePoint OpenSince(int) override { return {}; }
  TimePoint ClosedSince(int) override { return {}; }
  void WaitWhileOpen(int, std::chrono::nanoseconds) override {}
  void WaitWhileClosed(int, std::chrono::nanoseconds) override {}
  std::optional<uint32_t> QuietPhase(int) override { return phase; }
  std::optional<uint32_t> phase = 1;
};

class LaunchCostsTest : public testing::Test {
 protected:
  LaunchCostsTest() { ScriptedGpu::Reset(); }
  // One launch of that kind that takes so long. Returns what is known afterwards.
  std::chrono::nanoseconds Launch(uint64_t key, float milliseconds) {
    ScriptedGpu::SetDuration(milliseconds);
    LaunchCosts::Cost& cost = costs_.Of(key);
    costs_.End(costs_.Begin(cost, nullptr), nullptr);
    costs_.Collect();
    return cost.duration();
  }
  const DriverTable table_ = ScriptedGpu::Table();
  QuietWatch watch_;
  CompletionSource completions_{table_};
  LaunchCosts costs_{completions_, 0, watch_};
};

TEST_F(LaunchCostsTest, KindsAreKeptApart) {
  EXPECT_EQ(costs_.Of(1).duration(), microseconds(0));
  EXPECT_EQ(Launch(1, 0.0625f), std::chrono::nanoseconds(62'500));
  EXPECT_EQ(Launch(2, 0.5f), microseconds(500));
  EXPECT_EQ(costs_.Of(1).duration(), std::chrono::nanoseconds(62'500));
}

TEST_F(LaunchCostsTest, ShortLaunchesAreTimedNowAndThenAndFollowed) {
  for (int i = 0; i < 100; ++i) Launch(1, 0.0625f);
  const uint64_t before = ScriptedGpu::NumQueries();
  std::chrono::nanoseconds known{0};
  for (int i = 0; i < 1600; ++i) known = Launch(1, 0.125f);
  EXPECT_NEAR(static_cast<double>(known.count()), 125'000, 2'000);
  EXPECT_EQ(ScriptedGpu::NumQueries() - before, 100u) << "one query per sample";
}

TEST_F(LaunchCostsTest, DisturbedTimesCountOnlyWhileNothingIsKnown) {
  watch_.phase = std::nullopt;
  EXPECT_EQ(Launch(1, 1.0f), microseconds(1000));
  EXPECT_EQ(Launch(1, 5.0f), microseconds(1000));
  watch_.phase = 3;
  EXPECT_EQ(Launch(1, 2.0f), microseconds(1250));
}

TEST_F(LaunchCostsTest, NobodyWaitsForWhatHasNotEnded) {
  ScriptedGpu::Stop();
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(Launch(1, 1.0f), microseconds(0));
  ScriptedGpu::Go();
  EXPECT_EQ(Launch(1, 1.0f), microseconds(1000));
}

TEST_F(LaunchCostsTest, MoreKindsThanFitPushOutTheRarer) {
  for (int i = 0; i < 1000; ++i) Launch(77, 0.0625f);
  for (uint64_t key = 1000; key < 20'000; ++key) Launch(key, 0.125f);
  EXPECT_EQ(costs_.Of(77).duration(), std::chrono::nanoseconds(62'500));
}

}  // namespace
}  // namespace tally::server
