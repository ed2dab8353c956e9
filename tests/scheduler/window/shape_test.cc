#include "scheduler/window/shape.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace tally::scheduler {
namespace {

Access Read(uint64_t index) { return {*Box::Range(4096 + 256 * index, 256), AccessKind::kRead}; }
Access Write(uint64_t index) { return {*Box::Range(4096 + 256 * index, 256), AccessKind::kWrite}; }

struct Launched {
  std::vector<Access> accesses;
  uint64_t kernel = 1;
  uint64_t geometry = 1;
};

WindowShape ShapeOf(Window& window, const std::vector<Launched>& launches) {
  WindowShape shape;
  for (const Launched& launch : launches) shape.Add(*window.Admit(launch.accesses), launch.kernel, launch.geometry);
  return shape;
}

// 0 and 1 beside each other, 2 behind 0, 3 behind 1, 4 behind 2 and 3.
const std::vector<Launched> kDiamonds = {
    {{Write(0)}}, {{Write(1)}}, {{Read(0), Write(2)}}, {{Read(1), Write(3)}}, {{Read(2), Read(3), Write(4)}}};

TEST(WindowShape, HasLevelsAndTracks) {
  Window window;
  const WindowShape shape = ShapeOf(window, kDiamonds);
  ASSERT_EQ(shape.nodes().size(), 5u);
  EXPECT_EQ(shape.num_levels(), 3u);
  EXPECT_EQ(shape.num_tracks(), 2u);
  const uint8_t levels[] = {0, 0, 1, 1, 2};
  const uint8_t tracks[] = {0, 1, 0, 1, 0};
  const SlotSet edges[] = {0, 0, Just(0), Just(1), Just(2) | Just(3)};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(shape.nodes()[i].level, levels[i]) << i;
    EXPECT_EQ(shape.nodes()[i].track, tracks[i]) << i;
    EXPECT_EQ(shape.nodes()[i].edges, edges[i]) << i;
  }
}

TEST(WindowShape, EveryLaunchHasAPlaceOfItsOwn) {
  Window window;
  std::vector<Launched> launches;
  // Three chains that all read what the first launch wrote.
  launches.push_back({{Write(0)}});
  for (uint64_t i = 0; i < 63; ++i) launches.push_back({{Read(0), Read(1 + i % 3), Write(1 + i % 3)}});
  const WindowShape shape = ShapeOf(window, launches);
  EXPECT_TRUE(shape.is_full());
  EXPECT_EQ(shape.num_levels(), 22u);
  EXPECT_EQ(shape.num_tracks(), 3u);
  std::set<std::pair<int, int>> places;
  for (const WindowShape::Node& node : shape.nodes()) {
    EXPECT_TRUE(places.emplace(node.level, node.track).second);
    for (SlotSet left = node.edges; left != 0; left = WithoutFirst(left)) {
      EXPECT_LT(shape.nodes()[FirstOf(left)].level, node.level);
    }
  }
}

TEST(WindowShape, AllSideBySideIsATrackEach) {
  Window window;
  std::vector<Launched> launches;
  for (uint64_t i = 0; i < kMostSlots; ++i) launches.push_back({{Write(i)}});
  const WindowShape shape = ShapeOf(window, launches);
  EXPECT_EQ(shape.num_levels(), 1u);
  EXPECT_EQ(shape.num_tracks(), kMostSlots);
}

// A window has other slots and earlier launches when the same comes again.
TEST(WindowShape, IsFoundAgain) {
  Window window;
  const WindowShape first = ShapeOf(window, kDiamonds);
  window.Complete(1);
  window.Complete(0);
  WindowShape again = ShapeOf(window, kDiamonds);
  EXPECT_EQ(again.hash(), first.hash());
  EXPECT_TRUE(again == first);
  again.Clear();
  EXPECT_FALSE(again == first);
  for (Slot slot = 0; slot < 8; ++slot) {
    if ((window.pending() & Just(slot)) != 0) window.Complete(slot);
  }
  for (const Launched& launch : kDiamonds) again.Add(*window.Admit(launch.accesses), launch.kernel, launch.geometry);
  EXPECT_TRUE(again == first);
}

TEST(WindowShape, DiffersByKernelGeometryAndEdge) {
  const auto shape_of = [](const std::vector<Launched>& launches) {
    Window window;
    return ShapeOf(window, launches);
  };
  const WindowShape shape = shape_of(kDiamonds);
  std::vector<Launched> other = kDiamonds;
  other[3].kernel = 2;
  EXPECT_NE(shape_of(other).hash(), shape.hash());
  EXPECT_FALSE(shape_of(other) == shape);
  other = kDiamonds;
  other[0].geometry = 2;
  EXPECT_NE(shape_of(other).hash(), shape.hash());
  EXPECT_FALSE(shape_of(other) == shape);
  other = kDiamonds;
  other[3].accesses = {Read(0), Write(3)};
  EXPECT_NE(shape_of(other).hash(), shape.hash());
  EXPECT_FALSE(shape_of(other) == shape);
  // One launch fewer, and kernel and geometry changed about.
  other.pop_back();
  EXPECT_FALSE(shape_of(other) == shape);
  EXPECT_NE(shape_of({{{Write(0)}, 1, 2}}).hash(), shape_of({{{Write(0)}, 2, 1}}).hash());
}

// Who knows how the hash is made can choose numbers for which it agrees.
TEST(WindowShape, DiffersThoughHashesAgree) {
  const auto mix = [](uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15;
    return hash ^ (hash >> 32);
  };
  Window window;
  const WindowShape shape = ShapeOf(window, {{{Write(0)}, 1, 5}});
  const WindowShape other = ShapeOf(window, {{{Write(1)}, 2, 5 ^ mix(0, 1) ^ mix(0, 2)}});
  ASSERT_EQ(shape.hash(), other.hash());
  EXPECT_FALSE(shape == other);
}

}  // namespace
}  // namespace tally::scheduler
