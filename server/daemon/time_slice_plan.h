// Which time slice on the GPU the contexts of a domain are to have (docs/scheduling.md).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "proto/shm/handshake_abi.h"

namespace tally::server {

// Longer than any request: nobody interrupts high-priority work.
inline constexpr std::chrono::microseconds kHighPriorityTimeSlice{1'000'000};

// Contexts that take turns of 1 us do nothing but switch (measured: neither makes any progress); at 500 us a quarter of
// the time goes into switching at most.
inline constexpr std::chrono::microseconds kSharedTimeSlice{500};

// How many domains of each class there are.
struct DomainCount {
  size_t high_priority = 0;
  size_t best_effort = 0;
};

// Zero: the driver's own. `best_effort_slice` as configured, zero: time slices are left alone. `starvation_bound`:
// zero, or after what time best-effort work is to get something done although high-priority work never ends: then that
// must not have the GPU for longer, nor the other be switched out before it has done anything. Nobody is put before
// programs that Tally does not serve: both classes must be there. Of several high-priority domains none may keep the
// others from the GPU for so long; and while there is none, short slices would only make best-effort domains switch
// more often than they need.
constexpr std::chrono::microseconds TimeSliceFor(shm::PriorityClass priority_class, const DomainCount& domains,
                                                 std::chrono::microseconds best_effort_slice,
                                                 std::chrono::nanoseconds starvation_bound = {}) {
  const bool is_bounded = starvation_bound.count() != 0;
  if (best_effort_slice.count() == 0) return {};
  if (priority_class == shm::PriorityClass::kHighPriority) {
    if (domains.high_priority != 1 || domains.best_effort == 0) return {};
    const auto bound = std::chrono::duration_cast<std::chrono::microseconds>(starvation_bound);
    return is_bounded ? std::min(kHighPriorityTimeSlice, bound) : kHighPriorityTimeSlice;
  }
  if (domains.high_priority == 0) return {};
  return domains.best_effort > 1 || is_bounded ? std::max(best_effort_slice, kSharedTimeSlice) : best_effort_slice;
}

}  // namespace tally::server
