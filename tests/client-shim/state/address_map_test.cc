#include "client-shim/state/address_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>

namespace tally::client_shim {
namespace {

Allocation At(uint64_t address, uint64_t size) {
  Allocation allocation;
  allocation.address = address;
  allocation.size_bytes = size;
  return allocation;
}

TEST(AddressMap, FindsWhatContainsAnAddress) {
  AddressMap map;
  map.Insert(At(0x1000, 0x100));
  map.Insert(At(0x1100, 0x100));
  EXPECT_FALSE(map.Find(0xfff));
  EXPECT_EQ(map.Find(0x10ff)->address, 0x1000u);
  EXPECT_EQ(map.Find(0x1100)->address, 0x1100u);
  EXPECT_FALSE(map.Find(0x1200));
  EXPECT_TRUE(map.Covers(0x1000, 0x100));
  EXPECT_FALSE(map.Covers(0x1001, 0x100));
  EXPECT_FALSE(map.Covers(0x1001, ~uint64_t{0}));
  EXPECT_NE(map.Find(0x1000)->buffer_id, map.Find(0x1100)->buffer_id);
  EXPECT_TRUE(map.Remove(0x1000));
  EXPECT_FALSE(map.Remove(0x1000));
  EXPECT_FALSE(map.Remove(0x1101));
}

TEST(AddressMap, AdjoiningMappingsAreOnePiece) {
  AddressMap map;
  for (const uint64_t address : {0x1000, 0x1100, 0x1300}) {
    Allocation mapping = At(address, 0x100);
    mapping.kind = MemoryKind::kMapped;
    map.Insert(mapping);
  }
  map.Insert(At(0x1400, 0x100));  // an allocation behind the last
  EXPECT_TRUE(map.Covers(0x1080, 0x180));
  EXPECT_FALSE(map.Covers(0x1080, 0x181));
  EXPECT_FALSE(map.Covers(0x1380, 0x100));
  EXPECT_FALSE(map.Covers(0x1080, ~uint64_t{0}));
  EXPECT_FALSE(map.Find(0x1000)->is_ipc_capable());
  EXPECT_TRUE(map.Find(0x1400)->is_ipc_capable());
}

// A slow map that cannot be wrong: one entry per byte of a small address space.
class ByteModel {
 public:
  static constexpr uint64_t kBytes = 4096;
  std::array<int, kBytes> owner{};  // 0: nobody

  bool IsFree(uint64_t begin, uint64_t size) const {
    for (uint64_t at = begin; at < begin + size; ++at) {
      if (owner[at] != 0) return false;
    }
    return true;
  }
  void Set(uint64_t begin, uint64_t size, int who) {
    for (uint64_t at = begin; at < begin + size; ++at) owner[at] = who;
  }
};

TEST(AddressMap, AgreesWithAMapOfSingleBytes) {
  std::mt19937 random(20261121);
  AddressMap map;
  ByteModel model;
  std::map<int, Allocation> alive;
  int next = 1;
  const auto pick = [&](uint64_t below) { return std::uniform_int_distribution<uint64_t>(0, below - 1)(random); };
  for (int step = 0; step < 20000; ++step) {
    const uint64_t at = pick(ByteModel::kBytes);
    switch (pick(6)) {
      case 0:
      case 1: {
        const uint64_t size = 1 + pick(std::min<uint64_t>(200, ByteModel::kBytes - at));
        if (!model.IsFree(at, size)) break;
        Allocation allocation;
        allocation.address = at;
        allocation.size_bytes = size;
        allocation.context = static_cast<uint32_t>(pick(4));
        allocation.owner = 1 + pick(4);
        map.Insert(allocation);
        model.Set(at, size, next);
        alive[next++] = allocation;
        break;
      }
      case 2: {
        const int who = model.owner[at];
        const bool is_start = who != 0 && alive[who].address == at;
        EXPECT_EQ(map.Remove(at).has_value(), is_start);
        if (!is_start) break;
        model.Set(at, alive[who].size_bytes, 0);
        alive.erase(who);
        break;
      }
      case 3: {
        const auto found = map.Find(at);
        const int who = model.owner[at];
        ASSERT_EQ(found.has_value(), who != 0);
        if (found) {
          ASSERT_EQ(found->address, alive[who].address);
        }
        break;
      }
      case 4: {
        const uint64_t size = 1 + pick(std::min<uint64_t>(100, ByteModel::kBytes - at));
        int first = 0;
        bool is_one = true;
        for (uint64_t byte = at; byte < at + size; ++byte) {
          if (first == 0) first = model.owner[byte];
          is_one = is_one && model.owner[byte] == model.owner[at];
        }
        ASSERT_EQ(map.Covers(at, size), model.owner[at] != 0 && is_one);
        const auto overlap = map.FindOverlap(at, size);
        ASSERT_EQ(overlap.has_value(), first != 0);
        if (overlap) {
          ASSERT_EQ(overlap->address, alive[first].address);
        }
        break;
      }
      case 5: {
        if (pick(40) != 0) break;
        const bool by_context = pick(2) == 0;
        const uint64_t which = by_context ? pick(4) : 1 + pick(4);
        const size_t removed =
            (by_context ? map.RemoveContext(static_cast<uint32_t>(which)) : map.RemoveOwner(which)).size();
        size_t expected = 0;
        for (auto it = alive.begin(); it != alive.end();) {
          if ((by_context ? it->second.context : it->second.owner) != which) {
            ++it;
            continue;
          }
          model.Set(it->second.address, it->second.size_bytes, 0);
          it = alive.erase(it);
          ++expected;
        }
        ASSERT_EQ(removed, expected);
        break;
      }
    }
  }
  EXPECT_GT(next, 500);
}

}  // namespace
}  // namespace tally::client_shim
