// What a launch does to memory, as its window is told; and how the window names launches: by slot.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "scheduler/window/box.h"

namespace tally::scheduler {

// A launch that is pending in a window, by a number below kMostSlots that no other pending launch has. Free again once
// the launch is complete.
using Slot = uint8_t;
// Bit i: the launch in slot i.
using SlotSet = uint64_t;
constexpr size_t kMostSlots = 64;

constexpr SlotSet Just(Slot slot) { return SlotSet{1} << slot; }
// Of a set that is not empty.
constexpr Slot FirstOf(SlotSet slots) { return static_cast<Slot>(std::countr_zero(slots)); }
constexpr SlotSet WithoutFirst(SlotSet slots) { return slots & (slots - 1); }

enum class AccessKind : uint8_t {
  kRead,
  // It may write less than the box.
  kWrite,
  // Atomics, and kernels that work in place. A free counts as one: it comes after all use of the memory, and what is
  // allocated there later comes after it.
  kReadWrite,
};
constexpr bool Reads(AccessKind kind) { return kind != AccessKind::kWrite; }
constexpr bool Writes(AccessKind kind) { return kind != AccessKind::kRead; }

struct Access {
  Box box;
  AccessKind kind = AccessKind::kReadWrite;
  constexpr bool operator==(const Access&) const = default;
};

// Which launch must come behind which.
enum class Hazards : uint8_t {
  // Read after write, write after read, write after write: what is needed for the same bits.
  kAll,
  // Read after write only, as if each write filled its box, in memory of its own. Says how much waits for memory that
  // is
  // used again; never to be executed.
  kReadAfterWrite,
};

}  // namespace tally::scheduler
