// The memory that a session's launches may touch, as those ask who want to know what a launch touches. A session
// answers (session/window_memory.h). Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ptx-transforms/segments.h"
#include "scheduler/window/box.h"

namespace tally::server {

class LaunchMemory {
 public:
  // What lies in a piece of memory; of several, the last of these.
  enum class Sort : uint8_t {
    kNone,    // nothing that the session knows
    kPlain,   // the session's own, on a device, under one address
    kShared,  // other sessions or other addresses may name it
    kHost,    // the host sees what is written there, in the order in which it is written
  };

  virtual ~LaunchMemory() = default;
  // Another number after every change of what the others say.
  virtual uint64_t generation() const = 0;
  // The allocation with that address.
  virtual ptx_transforms::MemorySpan AllocationOf(uint64_t address) const = 0;
  virtual Sort SortWithin(uint64_t begin, uint64_t end) const = 0;
};

// Why nothing may run beside a launch that touches such memory, by docs/window.md; null: others may. Static.
const char* WhyNotBeside(LaunchMemory::Sort sort);
// Likewise of a box, all of which must lie in one allocation.
const char* WhyNotBeside(const scheduler::Box& box, const LaunchMemory& memory);

// What somebody asked of memory, and what it said. Not thread-safe.
class MemoryAnswers {
 public:
  ptx_transforms::MemorySpan AllocationOf(const LaunchMemory& memory, uint64_t address);
  LaunchMemory::Sort SortWithin(const LaunchMemory& memory, uint64_t begin, uint64_t end);
  // What was said to somebody else, too. Each answer is kept once.
  void Join(const MemoryAnswers& others);
  // Whether it says the same again: what was concluded still holds.
  bool Hold(const LaunchMemory& memory) const;
  size_t num_bytes() const { return allocations_.capacity() * sizeof(Allocation) + pieces_.capacity() * sizeof(Piece); }

 private:
  struct Allocation {
    uint64_t address;
    ptx_transforms::MemorySpan found;
    bool operator==(const Allocation&) const = default;
  };
  struct Piece {
    uint64_t begin;
    uint64_t end;
    LaunchMemory::Sort sort;
    bool operator==(const Piece&) const = default;
  };
  std::vector<Allocation> allocations_;
  std::vector<Piece> pieces_;
};

}  // namespace tally::server
