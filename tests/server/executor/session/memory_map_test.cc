#include "server/executor/session/memory_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tally::server {
namespace {

TEST(MemoryMapTest, FindsOnlyWhatIsInsideOneRange) {
  MemoryMap map;
  EXPECT_TRUE(map.Add({100, 50, MemoryKind::kDevice}));
  EXPECT_TRUE(map.Add({150, 50, MemoryKind::kPinned}));
  EXPECT_FALSE(map.Add({149, 1, MemoryKind::kDevice}));
  EXPECT_FALSE(map.Add({90, 11, MemoryKind::kDevice}));
  EXPECT_FALSE(map.Add({UINT64_MAX - 1, 10, MemoryKind::kDevice}));
  EXPECT_TRUE(map.Find(100, 50));
  EXPECT_FALSE(map.Find(100, 51));  // adjacent, but another allocation
  EXPECT_FALSE(map.Find(99, 1));
  EXPECT_FALSE(map.Find(120, UINT64_MAX));
  EXPECT_EQ(map.Find(150, 1)->kind, MemoryKind::kPinned);
  EXPECT_EQ(map.device_bytes(), 50u);
  EXPECT_EQ(map.pinned_bytes(), 50u);
}

TEST(MemoryMapTest, TakesByStartAndKind) {
  MemoryMap map;
  map.Add({100, 50, MemoryKind::kDevice});
  EXPECT_FALSE(map.Take(101, MemoryKind::kDevice, MemoryKind::kAsync));
  EXPECT_FALSE(map.Take(100, MemoryKind::kPinned, MemoryKind::kPinned));
  EXPECT_TRUE(map.Take(100, MemoryKind::kDevice, MemoryKind::kAsync));
  EXPECT_FALSE(map.Take(100, MemoryKind::kDevice, MemoryKind::kAsync));
  EXPECT_EQ(map.device_bytes(), 0u);
}

TEST(MemoryMapTest, AdjoiningMappingsAreOnePiece) {
  MemoryMap map;
  EXPECT_TRUE(map.Add({100, 50, MemoryKind::kMapped}));
  EXPECT_TRUE(map.Add({150, 50, MemoryKind::kMapped}));
  EXPECT_TRUE(map.Add({200, 50, MemoryKind::kDevice}));
  EXPECT_FALSE(map.Find(100, 1));  // nobody may access it
  map.SetAccess(100, 100, 3, true);
  EXPECT_EQ(map.Find(120, 80)->address, 100u);
  EXPECT_TRUE(map.Find(150, 50));
  EXPECT_FALSE(map.Find(120, 81));  // into the allocation behind
  EXPECT_FALSE(map.Find(120, UINT64_MAX));
  map.SetAccess(150, 50, 3, false);
  EXPECT_FALSE(map.Find(120, 80));
  EXPECT_TRUE(map.Find(120, 30));
  EXPECT_EQ(map.Mappings(100, 100).size(), 2u);
  EXPECT_TRUE(map.Mappings(100, 99).empty());
  EXPECT_TRUE(map.Mappings(110, 40).empty());
  EXPECT_TRUE(map.Mappings(100, 150).empty());
  EXPECT_EQ(map.MappingsWithin(100, 100).value().size(), 2u);
  EXPECT_EQ(map.MappingsWithin(0, 200).value().size(), 2u);
  EXPECT_TRUE(map.MappingsWithin(0, 100).value().empty());
  EXPECT_FALSE(map.MappingsWithin(0, 1000));  // there is something else, too
  EXPECT_FALSE(map.MappingsWithin(100, 99));
  EXPECT_FALSE(map.MappingsWithin(101, 99));
  EXPECT_FALSE(map.MappingsWithin(100, 0));
  EXPECT_TRUE(map.Mapping(199));
  EXPECT_FALSE(map.Mapping(200));
  EXPECT_EQ(map.device_bytes(), 50u);  // physical memory is counted by itself
}

TEST(MemoryMapTest, AgreesWithAnArrayOfOwners) {
  std::mt19937_64 random(1);
  MemoryMap map;
  std::vector<int> owner(512, 0);
  std::map<uint64_t, uint64_t> ranges;
  for (int step = 1; step < 4000; ++step) {
    const uint64_t address = random() % 512;
    const uint64_t size = 1 + random() % 40;
    if (random() % 2 == 0) {
      const bool free = address + size <= 512 && std::all_of(owner.begin() + static_cast<long>(address),
                                                             owner.begin() + static_cast<long>(address + size),
                                                             [](int who) { return who == 0; });
      if (address + size > 512) continue;
      ASSERT_EQ(map.Add({address, size, MemoryKind::kDevice}), free);
      if (free) {
        std::fill_n(owner.begin() + static_cast<long>(address), size, step);
        ranges[address] = size;
      }
    } else if (const auto found = ranges.find(address); found != ranges.end()) {
      ASSERT_TRUE(map.Take(address, MemoryKind::kDevice, MemoryKind::kDevice));
      std::fill_n(owner.begin() + static_cast<long>(address), found->second, 0);
      ranges.erase(found);
    }
    const uint64_t from = random() % 500;
    const uint64_t count = 1 + random() % 12;
    const bool inside = owner[from] != 0 && std::all_of(owner.begin() + static_cast<long>(from),
                                                        owner.begin() + static_cast<long>(from + count),
                                                        [&](int who) { return who == owner[from]; });
    ASSERT_EQ(map.Find(from, count).has_value(), inside);
  }
}

}  // namespace
}  // namespace tally::server
