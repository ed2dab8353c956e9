#include "server/daemon/time_slice_plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tally::server {
namespace {

using std::chrono::microseconds;
constexpr auto kHigh = shm::PriorityClass::kHighPriority;
constexpr auto kBestEffort = shm::PriorityClass::kBestEffort;

TEST(TimeSlicePlanTest, OneHighPriorityDomainIsNeverInterrupted) {
  EXPECT_EQ(TimeSliceFor(kHigh, {1, 1}, microseconds(1)), kHighPriorityTimeSlice);
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 1}, microseconds(1)), microseconds(1));
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 1}, microseconds(200)), microseconds(200));
}

TEST(TimeSlicePlanTest, AClassThatIsAloneSharesWithTheRestOfTheMachineAsTheDriverDoes) {
  EXPECT_EQ(TimeSliceFor(kHigh, {1, 0}, microseconds(1)), microseconds(0));
  EXPECT_EQ(TimeSliceFor(kBestEffort, {0, 1}, microseconds(1)), microseconds(0));
}

TEST(TimeSlicePlanTest, SeveralHighPriorityDomainsShareAsTheDriverDoes) {
  EXPECT_EQ(TimeSliceFor(kHigh, {2, 1}, microseconds(1)), microseconds(0));
  EXPECT_EQ(TimeSliceFor(kBestEffort, {2, 1}, microseconds(1)), microseconds(1));
}

TEST(TimeSlicePlanTest, BestEffortDomainsAmongThemselvesShareAsTheDriverDoes) {
  EXPECT_EQ(TimeSliceFor(kBestEffort, {0, 1}, microseconds(1)), microseconds(0));
}

TEST(TimeSlicePlanTest, SeveralBestEffortDomainsAreNotSwitchedAllTheTime) {
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 2}, microseconds(1)), kSharedTimeSlice);
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 3}, microseconds(1000)), microseconds(1000));
  EXPECT_EQ(TimeSliceFor(kHigh, {1, 2}, microseconds(1)), kHighPriorityTimeSlice);
}

TEST(TimeSlicePlanTest, WithAStarvationBoundNobodyKeepsTheGpuForLonger) {
  const std::chrono::milliseconds bound(100);
  EXPECT_EQ(TimeSliceFor(kHigh, {1, 1}, microseconds(1), bound), bound);
  EXPECT_EQ(TimeSliceFor(kHigh, {1, 1}, microseconds(1), std::chrono::seconds(5)), kHighPriorityTimeSlice);
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 1}, microseconds(1), bound), kSharedTimeSlice);
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 1}, microseconds(2000), bound), microseconds(2000));
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 1}, microseconds(0), bound), microseconds(0));
  EXPECT_EQ(TimeSliceFor(kHigh, {1, 0}, microseconds(1), bound), microseconds(0));
}

// What executors with two GPUs get. Bit n: it works on GPU n.
struct Works {
  shm::PriorityClass priority_class;
  uint64_t mask;
  std::vector<size_t> places = {0, 1};
  std::vector<UsedGpu> gpus() const { return UsedGpus(2, places, mask); }
};
std::vector<std::vector<int64_t>> SlicesOf(const std::vector<Works>& executors) {
  TimeSlicePlan plan(microseconds(1), {});
  for (const Works& executor : executors) plan.Add(executor.priority_class, executor.gpus());
  std::vector<std::vector<int64_t>> slices;
  for (const Works& executor : executors) {
    slices.emplace_back();
    for (const auto slice : plan.SlicesFor(executor.priority_class, executor.gpus())) {
      slices.back().push_back(slice.count());
    }
  }
  return slices;
}

TEST(TimeSlicePlanTest, WhoWorksOnOtherGpusIsNobodysNeighbour) {
  using Slices = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(SlicesOf({{kHigh, 0b01}, {kBestEffort, 0b10}}), (Slices{{0, 0}, {0, 0}}));
  EXPECT_EQ(SlicesOf({{kHigh, 0b01}, {kBestEffort, 0b11}}), (Slices{{1'000'000, 0}, {1, 0}}));
  EXPECT_EQ(SlicesOf({{kHigh, 0b11}, {kBestEffort, 0b10}}), (Slices{{0, 1'000'000}, {0, 1}}));
}

TEST(TimeSlicePlanTest, AServiceOnEachGpuIsTheOnlyOneThere) {
  using Slices = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(SlicesOf({{kHigh, 0b01}, {kHigh, 0b10}, {kBestEffort, 0b11}}),
            (Slices{{1'000'000, 0}, {0, 1'000'000}, {1, 1}}));
  EXPECT_EQ(SlicesOf({{kHigh, 0b01}, {kHigh, 0b11}, {kBestEffort, 0b11}}), (Slices{{0, 0}, {0, 1'000'000}, {1, 1}}));
  EXPECT_EQ(SlicesOf({{kHigh, 0b01}, {kBestEffort, 0b01}, {kBestEffort, 0b10}}),
            (Slices{{1'000'000, 0}, {1, 0}, {0, 0}}))
      << "one best-effort domain on each GPU, not two on one";
  EXPECT_EQ(SlicesOf({{kHigh, 0b11}, {kBestEffort, 0b01}, {kBestEffort, 0b11}}),
            (Slices{{1'000'000, 1'000'000}, {500, 0}, {500, 1}}));
}

TEST(TimeSlicePlanTest, ExecutorsMayCountTheGpusDifferently) {
  using Slices = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(SlicesOf({{kHigh, 0b01}, {kBestEffort, 0b10, {1, 0}}}), (Slices{{1'000'000, 0}, {0, 1}}));
  EXPECT_EQ(SlicesOf({{kHigh, 0b01}, {kBestEffort, 0b01, {1, 0}}}), (Slices{{0, 0}, {0, 0}}));
}

TEST(TimeSlicePlanTest, TheOnlyGpuIsUsedFromTheBeginning) {
  const std::vector<UsedGpu> one = UsedGpus(1, {}, 0);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_TRUE(one[0].is_used);
  for (const UsedGpu& gpu : UsedGpus(2, {}, 0)) EXPECT_FALSE(gpu.is_used);
}

TEST(TimeSlicePlanTest, ZeroLeavesThemAlone) {
  EXPECT_EQ(TimeSliceFor(kHigh, {1, 1}, microseconds(0)), microseconds(0));
  EXPECT_EQ(TimeSliceFor(kBestEffort, {1, 1}, microseconds(0)), microseconds(0));
}

}  // namespace
}  // namespace tally::server
