#include "scheduler/window/sampled_parallelism.h"

#include <gtest/gtest.h>

#include <vector>

namespace tally::scheduler {
namespace {

using std::chrono::nanoseconds;

constexpr uint64_t kLeast = SampledParallelism::kLeastLaunches;
constexpr uint64_t kMost = SampledParallelism::kMostLaunches;

// Time goes by whenever it is asked for. So a comparison takes `cost`.
class CostlyClock final : public Clock {
 public:
  TimePoint Now() const override {
    ++num_asked;
    return now += cost;
  }
  mutable TimePoint now{};
  mutable uint64_t num_asked = 0;
  nanoseconds cost{0};
};

class SampledParallelismTest : public testing::Test {
 protected:
  static Access Touches(uint64_t index) { return {*Box::Range(4096 + 256 * index, 256), AccessKind::kReadWrite}; }
  // Two chains side by side; or one.
  void Launch(bool is_chain = false) {
    const std::vector<Access> accesses = {Touches(is_chain ? 0 : num_launched_ % 2)};
    parallelism_.Add(accesses, Extent::kSaid);
    ++num_launched_;
    clock_.now += apart_;
  }
  void Steps(uint64_t num_launches, uint64_t each, bool is_chain = false) {
    for (uint64_t i = 1; i <= num_launches; ++i) {
      Launch(is_chain);
      if (i % each == 0) parallelism_.Close();
    }
  }
  uint64_t compared() { return parallelism_.report().compared; }

  CostlyClock clock_;
  SampledParallelism parallelism_{clock_};
  nanoseconds apart_{0};
  uint64_t num_launched_ = 0;
};

TEST_F(SampledParallelismTest, SmallProgramsAreComparedAltogether) {
  clock_.cost = nanoseconds(1000);
  Steps(kLeast, kLeast / 2);
  EXPECT_EQ(compared(), kLeast);
  EXPECT_EQ(parallelism_.report().launches, kLeast);
  EXPECT_EQ(parallelism_.report().longest_chain, kLeast / 2);
}

TEST_F(SampledParallelismTest, ComparingIsATinyPartOfTheTime) {
  clock_.cost = nanoseconds(2000);
  apart_ = nanoseconds(500);
  const TimePoint begin = clock_.now;
  Steps(200'000, 100);
  const auto time = clock_.now - begin;
  const auto cost = clock_.cost * static_cast<int64_t>(compared());
  EXPECT_GT(compared(), 2 * kLeast) << "it looks again and again";
  // The last stretch may still have to be made up for.
  EXPECT_LE(cost * 100, time * SampledParallelism::kMostPercent + clock_.cost * 100 * 2 * kLeast);
  EXPECT_EQ(parallelism_.report().launches, num_launched_) << "all count";
}

TEST_F(SampledParallelismTest, PassingAsksForTheTimeRarely) {
  clock_.cost = nanoseconds(2000);
  Steps(kLeast, kLeast);
  const uint64_t before = clock_.num_asked;
  Steps(6400, 10);
  EXPECT_EQ(compared(), kLeast);
  EXPECT_EQ(clock_.num_asked - before, 6400 / SampledParallelism::kLaunchesATime);
}

// Where the program takes its time everything is compared.
TEST_F(SampledParallelismTest, NothingIsPassedWhereComparingIsCheap) {
  clock_.cost = nanoseconds(2000);
  apart_ = clock_.cost * 200;
  Steps(5000, 100);
  EXPECT_EQ(compared(), 5000u);
  EXPECT_EQ(parallelism_.report().longest_chain, 2500u);
}

TEST_F(SampledParallelismTest, StretchesEndWithoutARequest) {
  clock_.cost = nanoseconds(2000);
  for (uint64_t i = 0; i < 3 * kMost; ++i) Launch();
  EXPECT_EQ(compared(), kMost);
  clock_.now += std::chrono::seconds(1);
  for (uint64_t i = 0; i < 3 * kMost; ++i) Launch();
  EXPECT_EQ(compared(), 2 * kMost) << "and begin";
  EXPECT_EQ(parallelism_.report().launches, 6 * kMost);
  EXPECT_EQ(parallelism_.report().longest_chain, 3 * kMost);
}

TEST_F(SampledParallelismTest, StretchesBeginAndEndWhereTheProgramAsksForAnythingElse) {
  clock_.cost = nanoseconds(2000);
  Steps(kLeast + 50, 100);
  EXPECT_EQ(compared(), 300u) << "the step's end";
  clock_.now += std::chrono::seconds(1);
  for (uint64_t i = 0; i < kMost - 1; ++i) Launch();
  EXPECT_EQ(compared(), 300u);
  parallelism_.Close();
  Launch();
  EXPECT_EQ(compared(), 301u);
}

// What is cheap to compare is compared more often: that must not make it count for more.
TEST_F(SampledParallelismTest, EachPartOfTheProgramCountsByItsLaunches) {
  apart_ = nanoseconds(10'000);
  for (int round = 0; round < 5; ++round) {
    clock_.cost = nanoseconds(4000);
    Steps(60'000, 100, /*is_chain=*/true);
    clock_.cost = nanoseconds(10);
    Steps(60'000, 100);
  }
  const SampledParallelism::Report report = parallelism_.report();
  EXPECT_EQ(report.launches, num_launched_);
  const double parallelism = static_cast<double>(report.launches) / static_cast<double>(report.longest_chain);
  EXPECT_NEAR(parallelism, 4.0 / 3, 0.15) << "half of the launches 1, half of them 2";
}

TEST_F(SampledParallelismTest, ReportsOnlyGrowAndLoseNothing) {
  clock_.cost = nanoseconds(2000);
  Steps(kLeast, kLeast);
  SampledParallelism::Report last = parallelism_.report();
  for (int i = 0; i < 1001; ++i) {
    Launch();
    const SampledParallelism::Report report = parallelism_.report();
    EXPECT_EQ(report.launches, last.launches + 1);
    EXPECT_GE(report.longest_chain, last.longest_chain);
    last = report;
  }
  EXPECT_EQ(last.longest_chain, (kLeast + 1001) / 2);
  EXPECT_EQ(last.longest_chain_read_after_write, (kLeast + 1001) / 2);
}

}  // namespace
}  // namespace tally::scheduler
