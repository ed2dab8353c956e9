#include "server/executor/driver/address_arena.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace tally::server {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr CUdeviceptr kBegin = AddressArena::kOfHome[0].begin, kEnd = kBegin + AddressArena::kOfHome[0].num_bytes;
constexpr CUdeviceptr kSecondBegin = AddressArena::kOfHome[1].begin;

// As an H200's: what is small lies where there is room, wherever it was wished for.
struct Driver {
  static DriverTable Table() {
    DriverTable table{};
    table.cuMemAddressReserve = [](CUdeviceptr* got, size_t num_bytes, size_t, CUdeviceptr wish, unsigned long long) {
      if (result != CUDA_SUCCESS) return result;
      *got = num_bytes < 1024 * kMiB || wish < least_granted ? kElsewhere : wish;
      ++num_reserved;
      return CUDA_SUCCESS;
    };
    table.cuMemAddressFree = [](CUdeviceptr, size_t) { return ++num_freed, CUDA_SUCCESS; };
    result = CUDA_SUCCESS;
    least_granted = 1;
    num_reserved = num_freed = 0;
    return table;
  }
  static constexpr CUdeviceptr kElsewhere = 0x7e8d98800000;
  static inline CUresult result;
  static inline CUdeviceptr least_granted;
  static inline int num_reserved, num_freed;
};

TEST(AddressArenaTest, SmallPiecesHaveAddressesThatAnotherProcessCanHave) {
  const DriverTable table = Driver::Table();
  AddressArena home(table, AddressArena::kOfHome), mirror(table, AddressArena::kOfHome);
  const auto first = home.Take(2 * kMiB), second = home.Take(4 * kMiB);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*second, *first + 2 * kMiB);
  EXPECT_TRUE(mirror.Holds(*first, 2 * kMiB));
  EXPECT_TRUE(mirror.Holds(*second, 4 * kMiB));
  EXPECT_EQ(Driver::num_reserved, 2) << "one range in each";
}

TEST(AddressArenaTest, OnlyWhatLiesInsideIsHeld) {
  const DriverTable table = Driver::Table();
  AddressArena arena(table, AddressArena::kOfHome);
  EXPECT_TRUE(arena.Holds(kBegin, kEnd - kBegin));
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
    Driver::least_granted = UINT64_MAX;
    if (refuses) Driver::result = CUDA_ERROR_OUT_OF_MEMORY;
    {
      AddressArena arena(table, AddressArena::kOfHome);
      EXPECT_FALSE(arena.Take(2 * kMiB));
      EXPECT_FALSE(arena.Holds(kBegin, 2 * kMiB));
      EXPECT_FALSE(arena.Give(kBegin, 2 * kMiB));
      EXPECT_FALSE(arena.Take(2 * kMiB));
    }
    EXPECT_EQ(Driver::num_reserved, refuses ? 0 : 2) << "each range";
    EXPECT_EQ(Driver::num_freed, Driver::num_reserved);
  }
  const DriverTable nothing{};
  AddressArena poor(nothing, AddressArena::kOfHome);
  EXPECT_FALSE(poor.Holds(kBegin, 2 * kMiB));
}

// As the software GPU's, whose addresses are few.
TEST(AddressArenaTest, ADriverThatHasNotTheFirstRangeMayHaveTheSecond) {
  const DriverTable table = Driver::Table();
  Driver::least_granted = kSecondBegin;
  {
    AddressArena home(table, AddressArena::kOfHome), mirror(table, AddressArena::kOfHome);
    ASSERT_EQ(home.Take(2 * kMiB), kSecondBegin);
    EXPECT_TRUE(mirror.Holds(kSecondBegin, 2 * kMiB));
    EXPECT_FALSE(mirror.Holds(kBegin, 2 * kMiB));
    EXPECT_FALSE(home.Give(kBegin, 2 * kMiB));
    EXPECT_TRUE(home.Give(kSecondBegin, 2 * kMiB));
    EXPECT_EQ(Driver::num_freed, 2) << "what was not as wished";
  }
  EXPECT_EQ(Driver::num_freed, Driver::num_reserved);
}

TEST(AddressArenaTest, WhatIsApartNeverLiesAtHomesAddresses) {
  for (const auto& home : AddressArena::kOfHome) {
    for (const auto& apart : AddressArena::kApart) {
      EXPECT_TRUE(apart.begin >= home.begin + home.num_bytes || home.begin >= apart.begin + apart.num_bytes);
    }
  }
}

TEST(AddressArenaTest, WhatIsNotFromHereIsNotTakenBack) {
  const DriverTable table = Driver::Table();
  AddressArena arena(table, AddressArena::kOfHome);
  ASSERT_TRUE(arena.Take(2 * kMiB));
  EXPECT_FALSE(arena.Give(Driver::kElsewhere, 2 * kMiB));
  EXPECT_FALSE(arena.Give(kBegin - 2 * kMiB, 2 * kMiB));
  EXPECT_FALSE(arena.Give(kEnd, 2 * kMiB));
}

// Pieces never overlap, lie inside, and once all are given back the whole range can be had again.
TEST(AddressArenaTest, TakenAndGivenAtRandom) {
  const DriverTable table = Driver::Table();
  std::mt19937 random(1);
  AddressArena arena(table, AddressArena::kOfHome);
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
  EXPECT_EQ(arena.Take(kEnd - kBegin), kBegin);
  EXPECT_FALSE(arena.Take(2 * kMiB));
}

}  // namespace
}  // namespace tally::server
