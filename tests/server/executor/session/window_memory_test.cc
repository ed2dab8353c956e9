#include "server/executor/session/window_memory.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

using Sort = LaunchMemory::Sort;

class WindowMemoryTest : public testing::Test {
 protected:
  bool IsChanged() {
    const uint64_t before = generation_;
    generation_ = memory_.generation();
    return generation_ != before;
  }

  MemoryMap map_;
  const WindowMemory memory_{map_};
  uint64_t generation_ = memory_.generation();
};

TEST_F(WindowMemoryTest, AllocationsEndWhereTheyEnd) {
  map_.Add({1000, 100, MemoryKind::kDevice});
  map_.Add({1100, 100, MemoryKind::kAsync});
  EXPECT_EQ(memory_.AllocationOf(1099), (ptx_transforms::MemorySpan{1000, 100}));
  EXPECT_EQ(memory_.AllocationOf(1100), (ptx_transforms::MemorySpan{1100, 100}));
  EXPECT_EQ(memory_.AllocationOf(999).bytes, 0u);
  EXPECT_EQ(memory_.AllocationOf(1200).bytes, 0u);
}

TEST_F(WindowMemoryTest, TheWorstOfWhatLiesThereCounts) {
  map_.Add({1000, 100, MemoryKind::kDevice});
  map_.Add({1100, 100, MemoryKind::kPinned});
  map_.Add({1200, 100, MemoryKind::kOpened});
  map_.Add({1400, 100, MemoryKind::kGlobal});
  EXPECT_EQ(memory_.SortWithin(900, 1000), Sort::kNone);
  EXPECT_EQ(memory_.SortWithin(900, 1001), Sort::kPlain);
  EXPECT_EQ(memory_.SortWithin(1050, 1100), Sort::kPlain);
  EXPECT_EQ(memory_.SortWithin(1050, 1101), Sort::kHost);
  EXPECT_EQ(memory_.SortWithin(1150, 1500), Sort::kHost);
  EXPECT_EQ(memory_.SortWithin(1200, 1500), Sort::kShared);
  EXPECT_EQ(memory_.SortWithin(1299, 1300), Sort::kShared);
  EXPECT_EQ(memory_.SortWithin(1300, 1400), Sort::kNone);
  EXPECT_EQ(memory_.SortWithin(1300, 2000), Sort::kPlain);
}

TEST_F(WindowMemoryTest, MemoryThatMayHaveTwoAddressesIsShared) {
  map_.Add({1000, 100, MemoryKind::kMapped});
  map_.Add({2000, 100, MemoryKind::kGraph});
  EXPECT_EQ(memory_.SortWithin(1000, 1001), Sort::kShared) << "even if no device may access it yet";
  EXPECT_EQ(memory_.SortWithin(2000, 2001), Sort::kShared);
}

TEST_F(WindowMemoryTest, EveryChangeOfTheMapIsAnotherGeneration) {
  EXPECT_TRUE(map_.Add({1000, 100, MemoryKind::kDevice}));
  EXPECT_TRUE(IsChanged());
  EXPECT_FALSE(IsChanged());
  EXPECT_FALSE(map_.Add({1050, 100, MemoryKind::kDevice}));
  EXPECT_FALSE(IsChanged());
  EXPECT_TRUE(map_.Take(1000, MemoryKind::kDevice, MemoryKind::kDevice));
  EXPECT_TRUE(IsChanged());
  EXPECT_FALSE(map_.Take(1000, MemoryKind::kDevice, MemoryKind::kDevice));
  EXPECT_FALSE(IsChanged());
  EXPECT_TRUE(map_.Add({1000, 100, MemoryKind::kMapped}));
  EXPECT_TRUE(IsChanged());
  map_.SetAccess(1000, 100, 0, true);
  EXPECT_TRUE(IsChanged());
  EXPECT_TRUE(map_.Add({2000, 100, MemoryKind::kGlobal, 0, this}));
  EXPECT_TRUE(IsChanged());
  map_.RemoveOwned(this);
  EXPECT_TRUE(IsChanged());
}

TEST_F(WindowMemoryTest, AnOrphanThatGivesWayIsAChangeEvenIfNothingComes) {
  map_.Add({1000, 100, MemoryKind::kGraph, 0, this});
  map_.RemoveOwned(this, {1000});
  map_.Add({1200, 100, MemoryKind::kDevice});
  IsChanged();
  EXPECT_FALSE(map_.Add({1050, 200, MemoryKind::kDevice}));
  EXPECT_EQ(memory_.AllocationOf(1000).bytes, 0u);
  EXPECT_TRUE(IsChanged());
}

}  // namespace
}  // namespace tally::server
