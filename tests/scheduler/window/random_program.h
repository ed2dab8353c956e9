// Random programs for a window, on a memory of a few bytes: what each launch says that it accesses, and which bytes
// those are.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <random>
#include <vector>

#include "scheduler/window/access.h"
#include "scheduler/window/window.h"

namespace tally::scheduler {

constexpr uint64_t kMemoryBytes = 256;
using Bytes = std::bitset<kMemoryBytes>;

enum class Boxes : uint8_t {
  kRanges,
  kOnePitch,    // ranges, and boxes that all have one pitch: overlaps are exact
  kAnyPitches,  // they may be found to overlap though they do not
};

struct RandomLaunch {
  std::vector<Access> accesses;
  Extent extent = Extent::kSaid;
  bool is_closed_before = false;  // Close comes before it
  Bytes reads;
  Bytes writes;
};

// Launches, copies (a read and a write of one length), fills, frees with the memory used again in allocations of other
// bounds, barriers, closes. Accesses lie within allocations, whole ones among them.
class RandomProgram {
 public:
  RandomProgram(uint32_t seed, Boxes boxes, size_t num_launches) : random_(seed), boxes_(boxes) {
    DivideIntoAllocations(0, kMemoryBytes);
    while (launches_.size() < num_launches) AddOne();
  }
  const std::vector<RandomLaunch>& launches() const { return launches_; }

 private:
  struct Allocation {
    uint64_t begin, end;
  };

  uint64_t Below(uint64_t n) { return random_() % n; }

  void DivideIntoAllocations(uint64_t begin, uint64_t end) {
    while (begin < end) {
      const uint64_t length = std::min(end - begin, 16 + Below(80));
      allocations_.push_back({begin, begin + length});
      begin += length;
    }
  }

  void AddOne() {
    RandomLaunch& launch = launches_.emplace_back();
    launch.is_closed_before = Below(40) == 0;
    const uint64_t what = Below(100);
    if (what < 3) {
      launch.extent = Extent::kAnything;
      launch.reads.set();
      launch.writes.set();
    } else if (what < 8) {
      AddFree(launch);
    } else {
      if (what < 12) {
        launch.extent = Extent::kReadsAnything;
        launch.reads.set();
      }
      const uint64_t num_accesses = Below(5);
      for (uint64_t i = 0; i < num_accesses; ++i) AddAccess(launch);
    }
  }

  // Two neighbours, or one if it is the last: freed together for brevity, and divided anew.
  void AddFree(RandomLaunch& launch) {
    const size_t at = Below(allocations_.size());
    const uint64_t begin = allocations_[at].begin;
    const size_t last = std::min(at + 1, allocations_.size() - 1);
    const uint64_t end = allocations_[last].end;
    for (size_t i = at; i <= last; ++i) {
      Say(launch, *Box::Range(allocations_[i].begin, allocations_[i].end - allocations_[i].begin),
          AccessKind::kReadWrite);
    }
    std::vector<Allocation> later(allocations_.begin() + static_cast<ptrdiff_t>(last) + 1, allocations_.end());
    allocations_.resize(at);
    DivideIntoAllocations(begin, end);
    allocations_.insert(allocations_.end(), later.begin(), later.end());
  }

  void AddAccess(RandomLaunch& launch) {
    const Allocation& allocation = allocations_[Below(allocations_.size())];
    const uint64_t length = allocation.end - allocation.begin;
    const auto kind = static_cast<AccessKind>(Below(3));
    if (Below(8) == 0) return Say(launch, *Box::Range(allocation.begin, length), kind);
    const uint64_t first = Below(length);
    const uint64_t left = length - first;
    if (boxes_ == Boxes::kRanges || Below(3) == 0) {
      return Say(launch, *Box::Range(allocation.begin + first, 1 + Below(std::min<uint64_t>(left, 24))), kind);
    }
    const uint64_t pitch = boxes_ == Boxes::kOnePitch ? 12 : 3 + Below(14);
    const uint64_t row_bytes = 1 + Below(std::min(left, pitch - 1));
    Say(launch, *Box::Rows(allocation.begin + first, row_bytes, 1 + Below((left - row_bytes) / pitch + 1), pitch),
        kind);
  }

  static void Say(RandomLaunch& launch, const Box& box, AccessKind kind) {
    launch.accesses.push_back({box, kind});
    for (uint64_t row = 0; row < box.rows(); ++row) {
      for (uint64_t i = 0; i < box.row_bytes(); ++i) {
        const uint64_t byte = box.begin() + row * box.pitch() + i;
        if (Reads(kind)) launch.reads.set(byte);
        if (Writes(kind)) launch.writes.set(byte);
      }
    }
  }

  std::mt19937 random_;
  const Boxes boxes_;
  std::vector<Allocation> allocations_;  // by address, without gaps
  std::vector<RandomLaunch> launches_;
};

}  // namespace tally::scheduler
