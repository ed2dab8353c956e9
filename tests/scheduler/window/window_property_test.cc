// The window against all pairs of launches and every byte: what it connects, at once or through others, is what must be
// connected, and nothing that others imply is said twice.
#include <gtest/gtest.h>

#include <array>
#include <bitset>
#include <random>
#include <vector>

#include "scheduler/window/window.h"
#include "tests/scheduler/window/random_program.h"

namespace tally::scheduler {
namespace {

constexpr size_t kNumLaunches = 300;
using LaunchSet = std::bitset<kNumLaunches>;

bool IsOrderedAnyway(const RandomLaunch& early, const RandomLaunch& late) {
  if (early.extent == Extent::kAnything || late.extent == Extent::kAnything) return true;
  if (early.extent == Extent::kReadsAnything && late.writes.any()) return true;
  return late.extent == Extent::kReadsAnything && early.writes.any();
}
bool ConflictByBytes(const RandomLaunch& early, const RandomLaunch& late) {
  if (IsOrderedAnyway(early, late)) return true;
  return (early.writes & (late.reads | late.writes)).any() || (early.reads & late.writes).any();
}
bool ConflictByBoxes(const RandomLaunch& early, const RandomLaunch& late) {
  if (IsOrderedAnyway(early, late)) return true;
  for (const Access& a : early.accesses) {
    for (const Access& b : late.accesses) {
      if ((Writes(a.kind) || Writes(b.kind)) && a.box.Overlaps(b.box)) return true;
    }
  }
  return false;
}

// Of each launch, all that come before it by conflicts, at once or through others.
class Closure {
 public:
  template <typename Conflict>
  Closure(const std::vector<RandomLaunch>& launches, Conflict conflict) : before_(launches.size()) {
    size_t closed = 0;  // those before it are before all that follows
    for (size_t late = 0; late < launches.size(); ++late) {
      if (launches[late].is_closed_before) closed = late;
      for (size_t early = late; early-- > 0;) {
        if (before_[late].test(early)) continue;
        if (early < closed || conflict(launches[early], launches[late])) {
          before_[late] |= before_[early];
          before_[late].set(early);
        }
      }
    }
  }
  const LaunchSet& Before(size_t launch) const { return before_[launch]; }

 private:
  std::vector<LaunchSet> before_;
};

struct Counts {
  uint64_t num_edges = 0;
  uint64_t num_extra = 0;  // pairs ordered though no byte asks for it
};

void Check(uint32_t seed, Boxes boxes, size_t most_boxes, Counts* counts) {
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const RandomProgram program(seed, boxes, kNumLaunches);
  const auto& launches = program.launches();
  const Closure least(launches, ConflictByBytes);
  const Closure most(launches, ConflictByBoxes);
  const size_t capacity = seed % 3 == 0 ? 1 + random() % kMostSlots : kMostSlots;
  Window window(capacity, Hazards::kAll, most_boxes);
  std::array<size_t, kMostSlots> in_slot{};
  std::vector<LaunchSet> before(launches.size());  // by the edges that were returned
  LaunchSet pending;
  for (size_t i = 0; i < launches.size(); ++i) {
    // What has nothing before it may leave. Late in some runs, so that the window is full, and soon in others.
    while (window.pending() != 0 && (window.is_full() || random() % (2 + seed % 7) == 0)) {
      const SlotSet ready = window.Ready();
      ASSERT_NE(ready, 0u);
      Slot slot = FirstOf(ready);
      for (SlotSet left = ready; left != 0; left = WithoutFirst(left)) {
        if (random() % 3 == 0) slot = FirstOf(left);
      }
      ASSERT_TRUE((least.Before(in_slot[slot]) & pending).none());
      window.Complete(slot);
      pending.reset(in_slot[slot]);
    }
    if (launches[i].is_closed_before) window.Close();
    const auto entry = window.Admit(launches[i].accesses, launches[i].extent);
    ASSERT_TRUE(entry.has_value());
    LaunchSet through_others;
    for (SlotSet left = entry->edges; left != 0; left = WithoutFirst(left)) {
      const size_t early = in_slot[FirstOf(left)];
      ASSERT_TRUE(pending.test(early)) << i;
      before[i].set(early);
      through_others |= before[early];
      ++counts->num_edges;
    }
    ASSERT_TRUE((through_others & before[i]).none()) << "an edge of " << i << " is implied by others";
    before[i] |= through_others;
    before[i] &= pending;
    const LaunchSet needed = least.Before(i) & pending;
    ASSERT_TRUE((needed & ~before[i]).none()) << i << " is not behind all that it must be behind";
    if (most_boxes == ConflictIndex::kMostBoxes) {
      ASSERT_TRUE((before[i] & ~most.Before(i)).none()) << i << " is behind more than its boxes say";
    }
    counts->num_extra += (before[i] & ~needed).count();
    LaunchSet ancestors;
    for (SlotSet left = window.Ancestors(entry->slot); left != 0; left = WithoutFirst(left)) {
      ancestors.set(in_slot[FirstOf(left)]);
    }
    ASSERT_EQ(ancestors, before[i]) << i;
    in_slot[entry->slot] = i;
    pending.set(i);
  }
}

TEST(WindowProperty, OrdersWhatConflictsAndNothingElse) {
  for (const Boxes boxes : {Boxes::kRanges, Boxes::kOnePitch}) {
    Counts counts;
    for (uint32_t seed = 1; seed <= 150; ++seed) {
      Check(seed, boxes, ConflictIndex::kMostBoxes, &counts);
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(counts.num_extra, 0u);
    EXPECT_GT(counts.num_edges, 30'000u);
  }
}

TEST(WindowProperty, WithBoxesOfAnyPitchesOrdersAllThatConflicts) {
  Counts counts;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    Check(seed, Boxes::kAnyPitches, ConflictIndex::kMostBoxes, &counts);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(counts.num_edges, 30'000u);
}

// Little room for boxes: more may be ordered, all that must be is.
TEST(WindowProperty, WithoutRoomOrdersAllThatConflicts) {
  Counts counts;
  for (const size_t most_boxes : {size_t{1}, size_t{4}, size_t{12}, size_t{30}}) {
    for (uint32_t seed = 1; seed <= 60; ++seed) {
      Check(seed, Boxes::kAnyPitches, most_boxes, &counts);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(counts.num_extra, 1'000u);  // there was too little room indeed
}

}  // namespace
}  // namespace tally::scheduler
