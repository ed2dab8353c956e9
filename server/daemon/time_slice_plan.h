// Which time slices on each GPU the contexts of a domain are to have (docs/scheduling.md).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "proto/shm/handshake_abi.h"

namespace tally::server {

// Longer than any request: nobody interrupts high-priority work.
inline constexpr std::chrono::microseconds kHighPriorityTimeSlice{1'000'000};

// Contexts that take turns of 1 us do nothing but switch (measured: neither makes any progress); at 500 us a quarter of
// the time goes into switching at most.
inline constexpr std::chrono::microseconds kSharedTimeSlice{500};

// How many domains of each class work on a GPU.
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

// One GPU of an executor.
struct UsedGpu {
  size_t place = 0;      // gpu_places.h
  bool is_used = false;  // programs of the executor have ever put work there
};

// By the executor's ordinals. `mask`: bit n, ordinal n is used. Where there is one GPU it is used, so that slices are
// set before the first kernel comes.
inline std::vector<UsedGpu> UsedGpus(uint32_t num_devices, const std::vector<size_t>& places, uint64_t mask) {
  std::vector<UsedGpu> gpus;
  for (size_t i = 0; i < std::min<size_t>(num_devices, 64); ++i) {
    gpus.push_back({i < places.size() ? places[i] : i, num_devices == 1 || (mask >> i & 1) != 0});
  }
  return gpus;
}

// Each GPU by itself: who works on other GPUs only is nobody's neighbour there.
class TimeSlicePlan {
 public:
  // As TimeSliceFor's.
  TimeSlicePlan(std::chrono::microseconds best_effort_slice, std::chrono::nanoseconds starvation_bound)
      : best_effort_slice_(best_effort_slice), starvation_bound_(starvation_bound) {}

  // A domain.
  void Add(shm::PriorityClass priority_class, const std::vector<UsedGpu>& gpus) {
    const bool is_high = priority_class == shm::PriorityClass::kHighPriority;
    for (const UsedGpu& gpu : gpus) {
      if (!gpu.is_used) continue;
      DomainCount& domains = domains_[gpu.place];
      ++(is_high ? domains.high_priority : domains.best_effort);
    }
  }
  // Of one that was added, by its ordinals. Zero: the driver's own, as where it does not work.
  std::vector<std::chrono::microseconds> SlicesFor(shm::PriorityClass priority_class,
                                                   const std::vector<UsedGpu>& gpus) const {
    std::vector<std::chrono::microseconds> slices;
    for (const UsedGpu& gpu : gpus) {
      const auto domains = domains_.find(gpu.place);
      slices.push_back(gpu.is_used && domains != domains_.end()
                           ? TimeSliceFor(priority_class, domains->second, best_effort_slice_, starvation_bound_)
                           : std::chrono::microseconds(0));
    }
    return slices;
  }

 private:
  const std::chrono::microseconds best_effort_slice_;
  const std::chrono::nanoseconds starvation_bound_;
  std::map<size_t, DomainCount> domains_;  // by place
};

}  // namespace tally::server
