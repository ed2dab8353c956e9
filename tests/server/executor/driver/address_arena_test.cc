#include "server/executor/driver/address_arena.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace tally::server {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr CUdeviceptr kBegin = AddressArena::kBegin, kEnd = kBegin + AddressArena::kNumBytes;

// As an H200's: what is small lies where there is room, wherever it was wished for.
struct Driver {
  static DriverTable Table() {
    DriverTable table{};
    table.cuMemAddressReserve = [](CUdeviceptr* got, size_t num_bytes, size_t, CUdeviceptr wish, unsigned long long) {
      if (result != CUDA_SUCCESS) return result;
      *got = num_bytes < 1024 * kMiB || wish == 0 || !grants ? kElsewhere : wish;
      ++num_reserved;
      return CUDA_SUCCESS;
    };
    table.cuMemAddressFree = [](CUdeviceptr, size_t) { return ++num_freed, CUDA_SUCCESS; };
    result = CUDA_SUCCESS;
    grants = true;
    num_reserved = num_freed = 0;
    return table;
  }
  static constexpr CUdeviceptr kElsewhere = 0x7e8d98800000;
  static inline CUresult result;
  static inline bool grants;
  static inline int num_reserved, num_freed;
};

TEST(AddressArenaTest, SmallPiecesHaveAddressesThatAnotherProcessCanHave) {
  const DriverTable table = Driver::Table();
  AddressArena home(table), mirror(table);
  const auto first = home.Take(2 * kMiB), second = home.Take(4 * kMiB);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*second, *first + 2 * kMiB);
  EXPECT_TRUE(mirror.Holds(*first, 2 * kMiB));
  EXPECT_TRUE(mirror.Holds(*second, 4 * kMiB));
  EXPECT_EQ(Driver::num_reserved, 2) << "one range in each";
}

TEST(AddressArenaTest, OnlyWhatLiesInsideIsHeld) {
  const DriverTable table = Driver::Table();
  AddressArena arena(table);
  EXPECT_TRUE(arena.Holds(kBegin, AddressArena::kNumBytes));
  EXPECT_TRUE(arena.Holds(kEnd - 2 * kMiB, 2 * kMiB));
  EXPECT_FALSE(arena.Holds(kBegin - 2 * kMiB, 2 * kMiB));
  EXPECT_FALSE(arena.Holds(kEnd - 2 * kMiB, 4 * kMiB));
  EXPECT_FALSE(arena.Holds(kEnd, 2 * kMiB));
  EXPECT_FALSE(arena.Holds(kBegin + 2 * kMiB, UINT64_MAX));
  EXPECT_FALSE(arena.Holds(Driver::kElsewhere, 2 * kMiB));
}

TEST(AddressArenaTest, WithoutARangeNothingIsTakenAndTheDriverIsAskedOnce) {
  for (const bool refuses : {false, true}) {
    const DriverTable table = Driver::Table();
    Driver::grants = false;
    if (refuses) Driver::result = CUDA_ERROR_OUT_OF_MEMORY;
    {
      AddressArena arena(table);
      EXPECT_FALSE(arena.Take(2 * kMiB));
      EXPECT_FALSE(arena.Holds(kBegin, 2 * kMiB));
      EXPECT_FALSE(arena.Give(kBegin, 2 * kMiB));
      EXPECT_FALSE(arena.Take(2 * kMiB));
    }
    EXPECT_EQ(Driver::num_reserved, refuses ? 0 : 1);
    EXPECT_EQ(Driver::num_freed, Driver::num_reserved);
  }
  const DriverTable nothing{};
  AddressArena poor(nothing);
  EXPECT_FALSE(poor.Holds(kBegin, 2 * kMiB));
}

TEST(AddressArenaTest, WhatIsNotFromHereIsNotTakenBack) {
  const DriverTable table = Driver::Table();
  AddressArena arena(table);
  ASSERT_TRUE(arena.Take(2 * kMiB));
  EXPECT_FALSE(arena.Give(Driver::kElsewhere, 2 * kMiB));
  EXPECT_FALSE(arena.Give(kBegin - 2 * kMiB, 2 * kMiB));
  EXPECT_FALSE(arena.Give(kEnd, 2 * kMiB));
}

// Pieces never overlap, lie inside, and once all are given back the whole range can be had again.
TEST(AddressArenaTest, TakenAndGivenAtRandom) {
  const DriverTable table = Driver::Table();
  std::mt19937 random(1);
  AddressArena arena(table);
  std::map<CUdeviceptr, uint64_t> taken;
  for (int i = 0; i < 20'000; ++i) {
    if (taken.size() < 200 && random() % 2 == 0) {
      const uint64_t num_bytes = (1 + random() % 4096) * 2 * kMiB;
      const auto address = arena.Take(num_bytes);
      if (!address) continue;
      ASSERT_GE(*address, kBegin);
      ASSERT_LE(*address + num_bytes, kEnd);
      const auto after = taken.lower_bound(*address);
      ASSERT_TRUE(after == taken.end() || *address + num_bytes <= after->first);
      ASSERT_TRUE(after == taken.begin() || std::prev(after)->first + std::prev(after)->second <= *address);
      taken.emplace(*address, num_bytes);
    } else if (!taken.empty()) {
      const auto gone = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      ASSERT_TRUE(arena.Give(gone->first, gone->second));
      taken.erase(gone);
    }
  }
  for (const auto& [address, num_bytes] : taken) ASSERT_TRUE(arena.Give(address, num_bytes));
  EXPECT_EQ(arena.Take(AddressArena::kNumBytes), kBegin);
  EXPECT_FALSE(arena.Take(2 * kMiB));
}

}  // namespace
}  // namespace tally::server
