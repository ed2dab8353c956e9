#include "scheduler/window/conflict_index.h"

#include <gtest/gtest.h>

#include <random>

namespace tally::scheduler {
namespace {

Access Read(uint64_t address, uint64_t bytes) { return {*Box::Range(address, bytes), AccessKind::kRead}; }
Access Write(uint64_t address, uint64_t bytes) { return {*Box::Range(address, bytes), AccessKind::kWrite}; }

TEST(ConflictIndex, FindsBoxesOfAllLengths) {
  ConflictIndex index;
  // One of each power of two, all over address 2^40; the last is far away.
  Slot slot = 0;
  for (uint32_t i = 0; i < 40; ++i) {
    const uint64_t bytes = uint64_t{1} << i;
    index.Add(slot++, Read((uint64_t{1} << 40) - bytes / 2, bytes));
  }
  index.Add(slot, Read(uint64_t{1} << 50, 1));
  EXPECT_EQ(index.Add(63, Write(uint64_t{1} << 40, 1)), (SlotSet{1} << 40) - 1);
}

TEST(ConflictIndex, FindsALongBoxThatBeginsFarBefore) {
  ConflictIndex index;
  index.Add(0, Write(1 << 20, 1000));
  for (uint64_t i = 0; i < 20; ++i) index.Add(1, Read((1 << 20) + 20 * i, 300));
  EXPECT_EQ(index.Add(2, Read((1 << 20) + 990, 5)), Just(0));
}

TEST(ConflictIndex, KeepsABoxForWhoComesAgain) {
  ConflictIndex index;
  for (int round = 0; round < 10'000; ++round) {
    index.Add(0, Write(4096, 256));
    index.Add(1, Read(4096, 256));
    index.Forget(0);
    index.Forget(1);
  }
  EXPECT_EQ(index.num_boxes(), 1u);
}

TEST(ConflictIndex, ItsMemoryIsBounded) {
  ConflictIndex index;
  std::mt19937_64 random(1);
  for (int i = 0; i < 200'000; ++i) {
    const Slot slot = static_cast<Slot>(i % 64);
    if (i % 3 == 0) index.Forget(slot);
    const uint64_t bytes = 1 + (random() >> (20 + random() % 40));
    const uint64_t address = random() >> (1 + random() % 40);
    index.Add(slot, {*Box::Range(address, bytes), static_cast<AccessKind>(i % 3)});
    ASSERT_LE(index.num_boxes(), ConflictIndex::kMostBoxes);
  }
}

TEST(ConflictIndex, WhatFindsNoRoomConflictsWithMore) {
  ConflictIndex index(Hazards::kAll, 2);
  index.Add(0, Write(1000, 10));
  index.Add(1, Write(2000, 10));
  EXPECT_EQ(index.Add(2, Write(5000, 10)), 0u);  // no room from here on
  EXPECT_EQ(index.Add(3, Read(3000, 10)), 0u);
  EXPECT_EQ(index.Add(4, Read(4000, 10)), Just(2));  // it is between those two
  EXPECT_EQ(index.Add(5, Write(4500, 10)), Just(2) | Just(3) | Just(4));
  EXPECT_EQ(index.Add(6, Read(1005, 10)), Just(0));
  // The range is around 6 as well, which only reads.
  EXPECT_EQ(index.Add(7, Write(1500, 10)) & Just(6), Just(6));
  for (Slot slot = 2; slot < 8; ++slot) index.Forget(slot);
  index.Forget(1);
  EXPECT_EQ(index.Add(8, Write(4500, 10)), 0u);
}

TEST(ConflictIndex, UnusedBoxesMakeRoom) {
  ConflictIndex index(Hazards::kAll, 16);
  for (uint64_t i = 0; i < 1000; ++i) {
    const Slot slot = static_cast<Slot>(i % 4);
    index.Forget(slot);
    index.Add(slot, Write(4096 + i * 64, 64));
    // Exact all the time: the one before this is there, nobody else.
    if (i == 0) continue;
    ASSERT_EQ(index.Add(slot, Read(4096 + (i - 1) * 64, 64)), Just(static_cast<Slot>((i - 1) % 4)));
  }
}

}  // namespace
}  // namespace tally::scheduler
