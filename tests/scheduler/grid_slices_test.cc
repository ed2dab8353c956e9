#include "scheduler/grid_slices.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tally::scheduler {
namespace {

TEST(GridSlicesTest, EveryBlockIsInExactlyOneBox) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    GridSize grid;
    for (uint32_t& size : grid) size = 1 + random() % (1u << random() % 6);
    const uint32_t degree = 1 + random() % 300;
    const GridSlices slices(grid, degree);
    ASSERT_LE(slices.count(), degree);
    ASSERT_GE(slices.count(), 1u);
    std::vector<int> seen(grid[0] * grid[1] * grid[2]);
    uint32_t smallest = UINT32_MAX, largest = 0;
    for (uint64_t i = 0; i < slices.count(); ++i) {
      const GridBox box = slices[i];
      const uint32_t volume = box.size[0] * box.size[1] * box.size[2];
      ASSERT_GE(volume, 1u);
      smallest = std::min(smallest, volume);
      largest = std::max(largest, volume);
      for (uint32_t z = 0; z < box.size[2]; ++z) {
        for (uint32_t y = 0; y < box.size[1]; ++y) {
          for (uint32_t x = 0; x < box.size[0]; ++x) {
            ++seen.at(((box.first[2] + z) * grid[1] + box.first[1] + y) * grid[0] + box.first[0] + x);
          }
        }
      }
    }
    for (const int count : seen) ASSERT_EQ(count, 1);
    ASSERT_LE(largest, 8 * smallest) << "no more than a part more in each dimension";
  }
}

TEST(GridSlicesTest, LargeGridsDoNotOverflow) {
  const GridSlices slices({2147483647, 65535, 65535}, 4096);
  EXPECT_EQ(slices.count(), 4096u);
  const GridBox last = slices[4095];
  EXPECT_EQ(last.first[2] + last.size[2], 65535u);
  EXPECT_EQ(GridSlices({2147483647, 1, 1}, 3)[2].first[0], 1431655764u);
}

TEST(GridSlicesTest, OneDimensionIsCutEvenly) {
  const GridSlices slices({10, 1, 1}, 4);
  ASSERT_EQ(slices.count(), 4u);
  EXPECT_EQ(slices[0].size, (GridSize{2, 1, 1}));
  EXPECT_EQ(slices[1].first, (GridSize{2, 0, 0}));
  EXPECT_EQ(slices[1].size, (GridSize{3, 1, 1}));
  EXPECT_EQ(slices[3].first, (GridSize{7, 0, 0}));
}

}  // namespace
}  // namespace tally::scheduler
