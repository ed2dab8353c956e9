// Window: a bounded set of pending launches of one stream, and which of them must run behind which (ACS).
//
// Launches are admitted in program order. Each is told the pending ones that it must come behind at once; what is not
// connected may run side by side. Of two ways to the same launch only the longer one is given:
//
//      0 -> 1 -> 2     edges of 2: {1}. 0 -> 2 holds as well and is implied by the set of ancestors that each slot has.
//
// A launch leaves when it is complete and what it wrote is visible, and those behind it may assume that. Tenants have
// windows of their own, one per stream: their memory is disjoint.
//
//      Admit       a launch in program order; nothing if the window is full: complete one first
//      Complete    it is done
//      Close       whatever comes is behind all that is pending: an event, a host function, a wait, a legacy join
//
// What a launch accesses is to be sound: too much costs parallelism, too little the right bits. A launch that has no
// accesses is ordered by Close and barriers alone. Frees and pool frees are launches that write the whole allocation.
//
// Costs: Admit those of ConflictIndex, and a step per conflict; Complete a pass over 64 words; Close that of completing
// all. Who wants it to be slow can have kMostAccesses times kMostBoxes steps in Admit, a fraction of a millisecond.
// Memory is bounded and nothing allocates in steady state (conflict_index.h). Not thread-safe. No clock.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "scheduler/window/access.h"
#include "scheduler/window/conflict_index.h"

namespace tally::scheduler {

// How much of what a launch does is known.
enum class Extent : uint8_t {
  // It accesses what it says.
  kSaid,
  // It may read anything besides (pointers from memory): behind all who write, and before all who write later.
  kReadsAnything,
  // It may do anything: behind all that is pending, before all that comes.
  kAnything,
};

class Window {
 public:
  // A launch with more accesses counts as one that may do anything.
  static constexpr size_t kMostAccesses = 256;

  // `capacity`: launches, 1 to kMostSlots. `most_boxes`: see ConflictIndex.
  explicit Window(size_t capacity = kMostSlots, Hazards hazards = Hazards::kAll,
                  size_t most_boxes = ConflictIndex::kMostBoxes);

  struct Entry {
    Slot slot = 0;
    SlotSet edges = 0;  // come before it, and no other of them comes before any of these
  };
  std::optional<Entry> Admit(std::span<const Access> accesses, Extent extent = Extent::kSaid);
  // It must be pending. Those before it are complete as well, but may be reported later.
  void Complete(Slot slot);
  void Close();

  bool is_full() const { return static_cast<size_t>(std::popcount(pending_)) == capacity_; }
  SlotSet pending() const { return pending_; }
  // Pending and before this pending launch, at once or by others in between.
  SlotSet Ancestors(Slot slot) const { return ancestors_[slot]; }
  // Pending, with nothing pending before them. Some may have been started already; the caller knows. 64 steps at most.
  SlotSet Ready() const;

 private:
  SlotSet Conflicts(Slot slot, std::span<const Access> accesses, Extent extent);

  const size_t capacity_;
  const Hazards hazards_;
  ConflictIndex index_;
  SlotSet pending_ = 0;
  // All of the following are among the pending.
  SlotSet closed_ = 0;   // all that comes is behind these
  SlotSet writing_ = 0;  // admitted since closed_, and write something
  SlotSet reading_anything_ = 0;
  std::array<SlotSet, kMostSlots> ancestors_{};
};

}  // namespace tally::scheduler
