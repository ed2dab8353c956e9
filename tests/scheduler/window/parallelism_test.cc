#include "scheduler/window/parallelism.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;

Access Read(uint64_t index) { return {*Box::Range(4096 + 256 * index, 256), AccessKind::kRead}; }
Access Write(uint64_t index) { return {*Box::Range(4096 + 256 * index, 256), AccessKind::kWrite}; }

void Add(WindowParallelism& parallelism, std::vector<Access> accesses, int us, Extent extent = Extent::kSaid) {
  parallelism.Add(accesses, extent, microseconds(us));
}

TEST(WindowParallelism, OfNothingIsOne) {
  const WindowParallelism parallelism;
  EXPECT_EQ(parallelism.report().work, Nanoseconds(0));
  EXPECT_EQ(parallelism.report().parallelism(), 1);
}

TEST(WindowParallelism, IsWorkOverTheLongestChain) {
  WindowParallelism parallelism;
  Add(parallelism, {Write(0)}, 4);
  Add(parallelism, {Write(1)}, 2);
  Add(parallelism, {Read(1), Write(2)}, 4);
  Add(parallelism, {Read(0), Read(2)}, 2);
  EXPECT_EQ(parallelism.report().work, microseconds(12));
  EXPECT_EQ(parallelism.report().longest_chain, microseconds(8));
  EXPECT_DOUBLE_EQ(parallelism.report().parallelism(), 1.5);
}

// One buffer for all: only the reuse of memory keeps the pairs apart.
TEST(WindowParallelism, TellsWhatReusedMemoryCosts) {
  WindowParallelism parallelism;
  for (int i = 0; i < 10; ++i) {
    Add(parallelism, {Write(0)}, 1);
    Add(parallelism, {Read(0), Write(static_cast<uint64_t>(1 + i))}, 1);
  }
  EXPECT_EQ(parallelism.report().longest_chain, microseconds(20));
  EXPECT_EQ(parallelism.report().longest_chain_read_after_write, microseconds(2));
  EXPECT_DOUBLE_EQ(parallelism.report().parallelism_read_after_write(), 10);
}

TEST(WindowParallelism, BarriersAndCloseEndWhatRunsSideBySide) {
  WindowParallelism parallelism;
  for (int i = 0; i < 3; ++i) {
    Add(parallelism, {Write(0)}, 1);
    Add(parallelism, {Write(1)}, 1);
    parallelism.Close();
    Add(parallelism, {}, 1, Extent::kAnything);
  }
  EXPECT_EQ(parallelism.report().longest_chain, microseconds(6));
  EXPECT_EQ(parallelism.report().longest_chain_read_after_write, microseconds(6));
}

TEST(WindowParallelism, IsAtMostTheWindow) {
  WindowParallelism parallelism(8);
  for (uint64_t i = 0; i < 80; ++i) Add(parallelism, {Write(i)}, 5);
  EXPECT_EQ(parallelism.report().longest_chain, microseconds(50));
  // A long one keeps one place; the others go on.
  Add(parallelism, {Write(0)}, 1000);
  for (uint64_t i = 0; i < 70; ++i) Add(parallelism, {Write(1 + i)}, 5);
  EXPECT_EQ(parallelism.report().longest_chain, microseconds(1050));
}

// Chains go on through launches that left the window long ago.
TEST(WindowParallelism, FollowsChainsThroughManyWindows) {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    WindowParallelism parallelism;
    constexpr uint64_t kChains = 7;
    std::vector<Nanoseconds> ends(kChains);
    for (int i = 0; i < 2000; ++i) {
      const uint64_t chain = static_cast<uint64_t>(i) % kChains;
      const auto duration = microseconds(10 + random() % 3);
      parallelism.Add(std::vector<Access>{Read(chain), Write(chain)}, Extent::kSaid, duration);
      ends[chain] += duration;
    }
    EXPECT_EQ(parallelism.report().longest_chain, *std::ranges::max_element(ends));
  }
}

}  // namespace
}  // namespace tally::scheduler
