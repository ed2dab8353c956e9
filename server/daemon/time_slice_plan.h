// Which time slice on the GPU the contexts of a domain are to have (docs/scheduling.md).
#pragma once

#include <chrono>
#include <cstddef>

#include "proto/shm/handshake_abi.h"

namespace tally::server {

// Longer than any request: nobody interrupts high-priority work.
inline constexpr std::chrono::microseconds kHighPriorityTimeSlice{1'000'000};

// Zero: the driver's own. `best_effort_slice` as configured, zero: time slices are left alone.
// Of several high-priority domains none may keep the others from the GPU for so long; and while there is none, short
// slices would only make best-effort domains switch more often than they need.
constexpr std::chrono::microseconds TimeSliceFor(shm::PriorityClass priority_class, size_t num_high_priority_domains,
                                                 std::chrono::microseconds best_effort_slice) {
  if (best_effort_slice.count() == 0) return {};
  if (priority_class == shm::PriorityClass::kHighPriority) {
    return num_high_priority_domains == 1 ? kHighPriorityTimeSlice : std::chrono::microseconds(0);
  }
  return num_high_priority_domains != 0 ? best_effort_slice : std::chrono::microseconds(0);
}

}  // namespace tally::server
