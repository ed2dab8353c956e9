#include "scheduler/window/window.h"

#include <gtest/gtest.h>

#include <vector>

namespace tally::scheduler {
namespace {

constexpr AccessKind kRead = AccessKind::kRead;
constexpr AccessKind kWrite = AccessKind::kWrite;
constexpr AccessKind kReadWrite = AccessKind::kReadWrite;

// Memory by small numbers: 256 bytes each, side by side.
Box At(uint64_t first, uint64_t count = 1) { return *Box::Range(4096 + 256 * first, 256 * count); }
Access Read(uint64_t first, uint64_t count = 1) { return {At(first, count), kRead}; }
Access Write(uint64_t first, uint64_t count = 1) { return {At(first, count), kWrite}; }

Window::Entry Admit(Window& window, const std::vector<Access>& accesses, Extent extent = Extent::kSaid) {
  const auto entry = window.Admit(accesses, extent);
  EXPECT_TRUE(entry.has_value());
  return entry.value_or(Window::Entry{});
}
Window::Entry AdmitBarrier(Window& window) { return Admit(window, {}, Extent::kAnything); }

// C = A * B; D = relu(C): Algorithm 1 of ACS compares {D} with {A, B, C} and starts both at once.
TEST(Window, ReadComesBehindWrite) {
  Window window;
  const auto product = Admit(window, {Read(0), Read(1), Write(2)});
  const auto relu = Admit(window, {Read(2), Write(3)});
  EXPECT_EQ(product.edges, 0u);
  EXPECT_EQ(relu.edges, Just(product.slot));
}

TEST(Window, WriteComesBehindReads) {
  Window window;
  const auto first = Admit(window, {Read(0), Write(1)});
  const auto second = Admit(window, {Read(0), Write(2)});
  EXPECT_EQ(second.edges, 0u);
  EXPECT_EQ(Admit(window, {Write(0)}).edges, Just(first.slot) | Just(second.slot));
}

TEST(Window, WriteComesBehindWrite) {
  Window window;
  const auto first = Admit(window, {Write(0)});
  const auto second = Admit(window, {Write(0)});
  EXPECT_EQ(second.edges, Just(first.slot));
  EXPECT_EQ(Admit(window, {Write(1)}).edges, 0u);
}

TEST(Window, ReadsAreSideBySide) {
  Window window;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Admit(window, {Read(0)}).edges, 0u);
  EXPECT_EQ(window.Ready(), (SlotSet{1} << 10) - 1);
}

TEST(Window, AtomicsComeBehindReadersAndBeforeThem) {
  Window window;
  const auto reader = Admit(window, {Read(0)});
  const auto atomic = Admit(window, {{At(0), kReadWrite}});
  EXPECT_EQ(atomic.edges, Just(reader.slot));
  EXPECT_EQ(Admit(window, {Read(0)}).edges, Just(atomic.slot));
}

TEST(Window, ALaunchIsNotBehindItself) {
  Window window;
  EXPECT_EQ(Admit(window, {Read(0), Write(0), Write(0, 4), Read(1)}).edges, 0u);
}

TEST(Window, ImpliedEdgesAreLeftOut) {
  Window window;
  const auto a = Admit(window, {Write(0)});
  const auto b = Admit(window, {Read(0), Write(1)});
  const auto c = Admit(window, {Read(1), Write(2)});
  const auto d = Admit(window, {Read(0), Read(1), Read(2)});
  EXPECT_EQ(b.edges, Just(a.slot));
  EXPECT_EQ(c.edges, Just(b.slot));
  EXPECT_EQ(d.edges, Just(c.slot));
  EXPECT_EQ(window.Ancestors(d.slot), Just(a.slot) | Just(b.slot) | Just(c.slot));
  EXPECT_EQ(window.Ready(), Just(a.slot));
}

TEST(Window, AWriteOfAllHidesNothingThatOverlapsInPart) {
  Window window;
  const auto both = Admit(window, {Write(0, 2)});
  const auto second = Admit(window, {Write(1)});
  EXPECT_EQ(second.edges, Just(both.slot));
  // Of the first half `both` is still the last writer.
  EXPECT_EQ(Admit(window, {Read(0)}).edges, Just(both.slot));
  EXPECT_EQ(Admit(window, {Read(1)}).edges, Just(second.slot));
}

TEST(Window, WholeAllocationsMeetTheirParts) {
  Window window;
  const auto part = Admit(window, {Write(7)});
  const auto whole = Admit(window, {Read(0, 1000)});
  EXPECT_EQ(whole.edges, Just(part.slot));
  EXPECT_EQ(Admit(window, {Write(900)}).edges, Just(whole.slot));
  EXPECT_EQ(Admit(window, {Write(1000)}).edges, 0u);
  EXPECT_EQ(Admit(window, {Read(8)}).edges, 0u);
}

TEST(Window, TilesAreSideBySide) {
  Window window;
  const auto tile = [](uint64_t column, AccessKind kind) {
    return Access{*Box::Rows(4096 + column * 64, 64, 16, 1024), kind};
  };
  const auto first = Admit(window, {tile(0, kWrite)});
  EXPECT_EQ(Admit(window, {tile(1, kWrite)}).edges, 0u);
  EXPECT_EQ(Admit(window, {tile(0, kRead), tile(2, kWrite)}).edges, Just(first.slot));
}

TEST(Window, CompletedLaunchesAreNoMoreBefore) {
  Window window;
  const auto a = Admit(window, {Write(0)});
  const auto b = Admit(window, {Read(0), Write(1)});
  window.Complete(a.slot);
  EXPECT_EQ(window.Ready(), Just(b.slot));
  EXPECT_EQ(Admit(window, {Write(0)}).edges, Just(b.slot));
  EXPECT_EQ(Admit(window, {Read(1)}).edges, Just(b.slot));
}

// Its slot has another launch: what was known of the old one must not be said of the new one.
TEST(Window, ANewLaunchInAnOldSlotStartsAfresh) {
  Window window;
  const auto a = Admit(window, {Write(0)});
  const auto b = Admit(window, {Read(0), Write(1)});
  window.Complete(a.slot);
  const auto other = Admit(window, {Write(5)});
  ASSERT_EQ(other.slot, a.slot);
  EXPECT_EQ(Admit(window, {Read(1), Read(5)}).edges, Just(b.slot) | Just(other.slot));
  EXPECT_EQ(Admit(window, {Read(0)}).edges, 0u);
}

TEST(Window, MoreAccessesThanASlotRemembersAreForgotten) {
  Window window;
  std::vector<Access> many;
  for (uint64_t i = 0; i < 40; ++i) many.push_back(Write(2 * i));
  const auto first = Admit(window, many);
  EXPECT_EQ(Admit(window, {Read(78)}).edges, Just(first.slot));
  window.Complete(first.slot);
  EXPECT_EQ(Admit(window, many).slot, first.slot);
  EXPECT_EQ(Admit(window, {Write(1)}).edges, 0u);
  window.Complete(first.slot);
  Admit(window, {Write(1000)});
  for (uint64_t i = 0; i < 39; ++i) EXPECT_EQ(Admit(window, {Read(2 * i)}).edges, 0u);
}

TEST(Window, AFreeComesBehindUseAndBeforeReuse) {
  Window window;
  const auto use = Admit(window, {Read(10), Write(12)});
  const auto free = Admit(window, {{At(8, 8), kReadWrite}});
  EXPECT_EQ(free.edges, Just(use.slot));
  // The same addresses in another allocation, of other bounds: behind the free and nothing older.
  const auto reuse = Admit(window, {Write(12, 8)});
  EXPECT_EQ(reuse.edges, Just(free.slot));
  EXPECT_EQ(Admit(window, {Read(10)}).edges, Just(free.slot));
  EXPECT_EQ(Admit(window, {Read(17)}).edges, Just(reuse.slot));
}

TEST(Window, ABarrierIsBehindAllAndBeforeAll) {
  Window window;
  const auto a = Admit(window, {Write(0)});
  const auto b = Admit(window, {Read(0)});
  const auto alone = Admit(window, {});
  const auto barrier = AdmitBarrier(window);
  EXPECT_EQ(barrier.edges, Just(b.slot) | Just(alone.slot));
  EXPECT_EQ(window.Ancestors(barrier.slot), Just(a.slot) | Just(b.slot) | Just(alone.slot));
  EXPECT_EQ(Admit(window, {Read(0)}).edges, Just(barrier.slot));
  EXPECT_EQ(Admit(window, {}).edges, Just(barrier.slot));
  for (const Slot slot : {a.slot, b.slot, alone.slot, barrier.slot}) window.Complete(slot);
  EXPECT_EQ(Admit(window, {Write(9)}).edges, 0u);
}

TEST(Window, WhoReadsAnythingIsBehindWritersAlone) {
  Window window;
  const auto reader = Admit(window, {Read(0)});
  const auto writer = Admit(window, {Write(1)});
  const auto anything = Admit(window, {Write(2)}, Extent::kReadsAnything);
  EXPECT_EQ(anything.edges, Just(writer.slot));
  EXPECT_EQ(Admit(window, {Read(1)}).edges, Just(writer.slot));
  EXPECT_EQ(Admit(window, {Read(2)}).edges, Just(anything.slot));
  EXPECT_EQ(Admit(window, {Write(77)}).edges, Just(anything.slot));
  window.Complete(writer.slot);
  window.Complete(anything.slot);
  EXPECT_EQ(Admit(window, {Write(78)}).edges, 0u);
  EXPECT_NE(window.pending() & Just(reader.slot), 0u);
}

TEST(Window, TwoWhoReadAnythingAreSideBySide) {
  Window window;
  const auto first = Admit(window, {}, Extent::kReadsAnything);
  EXPECT_EQ(Admit(window, {}, Extent::kReadsAnything).edges, 0u);
  // One that writes as well is behind the first.
  EXPECT_EQ(Admit(window, {Write(0)}, Extent::kReadsAnything).edges & Just(first.slot), Just(first.slot));
}

TEST(Window, WhatComesAfterCloseIsBehindAll) {
  Window window;
  const auto a = Admit(window, {Write(0)});
  const auto b = Admit(window, {Read(0)});
  const auto c = Admit(window, {Write(1)});
  window.Close();
  const auto d = Admit(window, {Read(9)});
  const auto e = Admit(window, {Read(9)});
  EXPECT_EQ(d.edges, Just(b.slot) | Just(c.slot));
  EXPECT_EQ(e.edges, Just(b.slot) | Just(c.slot));
  window.Close();
  window.Close();
  EXPECT_EQ(Admit(window, {}).edges, Just(d.slot) | Just(e.slot));
  EXPECT_EQ(window.Ready(), Just(a.slot) | Just(c.slot));
}

TEST(Window, IsFullAtItsCapacity) {
  for (const size_t capacity : {size_t{1}, size_t{16}, kMostSlots}) {
    Window window(capacity);
    for (size_t i = 0; i < capacity; ++i) EXPECT_EQ(Admit(window, {Write(i)}).edges, 0u);
    EXPECT_TRUE(window.is_full());
    const std::vector<Access> one = {Write(0)};
    EXPECT_FALSE(window.Admit(one).has_value());
    window.Complete(static_cast<Slot>(capacity / 2));
    const auto entry = Admit(window, {Read(capacity)});
    EXPECT_EQ(entry.slot, capacity / 2);
    EXPECT_EQ(entry.edges, 0u);
  }
}

TEST(Window, AMillionBoxesAreABarrier) {
  Window window;
  const auto before = Admit(window, {Read(0)});
  const std::vector<Access> million(1'000'000, Read(5));
  const auto hostile = Admit(window, million);
  EXPECT_EQ(hostile.edges, Just(before.slot));
  EXPECT_EQ(Admit(window, {Read(9)}).edges, Just(hostile.slot));
}

TEST(Window, ReadAfterWriteAloneForgetsTheOtherHazards) {
  Window window(kMostSlots, Hazards::kReadAfterWrite);
  const auto writer = Admit(window, {Write(0)});
  const auto reader = Admit(window, {Read(0)});
  EXPECT_EQ(reader.edges, Just(writer.slot));
  const auto again = Admit(window, {Write(0)});
  EXPECT_EQ(again.edges, 0u);
  EXPECT_EQ(Admit(window, {Read(0)}).edges, Just(again.slot));
  EXPECT_EQ(Admit(window, {{At(0), kReadWrite}}).edges, Just(again.slot));
}

}  // namespace
}  // namespace tally::scheduler
