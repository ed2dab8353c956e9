// PairLoop: the search for conflicts as ACS describes it (arXiv 2401.12377, Algorithm 1), to compare with: each segment
// of the new launch against each of every pending one. Ranges only, and no edge is left out because others imply it.
//
// As published it misses what reads behind a write; here that is looked for as well, which costs a little more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "scheduler/window/access.h"

namespace tally::scheduler_window {

class PairLoop {
 public:
  explicit PairLoop(size_t capacity) : capacity_(capacity), pending_(capacity) {}

  struct Entry {
    scheduler::Slot slot = 0;
    scheduler::SlotSet edges = 0;
  };
  std::optional<Entry> Admit(std::span<const scheduler::Access> accesses) {
    const scheduler::SlotSet free = ~taken_ & (~scheduler::SlotSet{0} >> (scheduler::kMostSlots - capacity_));
    if (free == 0) return std::nullopt;
    const scheduler::Slot slot = scheduler::FirstOf(free);
    Segments& own = pending_[slot];
    own.reads.clear();
    own.writes.clear();
    for (const scheduler::Access& access : accesses) {
      const Segment segment{access.box.begin(), access.box.end()};
      if (scheduler::Reads(access.kind)) own.reads.push_back(segment);
      if (scheduler::Writes(access.kind)) own.writes.push_back(segment);
    }
    Entry entry{.slot = slot};
    for (scheduler::SlotSet left = taken_; left != 0; left = scheduler::WithoutFirst(left)) {
      const scheduler::Slot other = scheduler::FirstOf(left);
      if (IsBehind(own, pending_[other])) entry.edges |= scheduler::Just(other);
    }
    taken_ |= scheduler::Just(slot);
    return entry;
  }
  void Complete(scheduler::Slot slot) { taken_ &= ~scheduler::Just(slot); }

 private:
  struct Segment {
    uint64_t begin, end;
  };
  struct Segments {
    std::vector<Segment> reads;
    std::vector<Segment> writes;
  };

  static bool Meet(const std::vector<Segment>& a, const std::vector<Segment>& b) {
    for (const Segment& x : a) {
      for (const Segment& y : b) {
        if (x.begin < y.end && y.begin < x.end) return true;
      }
    }
    return false;
  }
  static bool IsBehind(const Segments& own, const Segments& other) {
    return Meet(own.writes, other.writes) || Meet(own.writes, other.reads) || Meet(own.reads, other.writes);
  }

  const size_t capacity_;
  std::vector<Segments> pending_;
  scheduler::SlotSet taken_ = 0;
};

}  // namespace tally::scheduler_window
