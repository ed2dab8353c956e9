// How long the GPU is to run this executor's contexts at a time beside others', by device, as tallyd last wanted it:
// for processes of its own that put its programs' work on further GPUs.
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/shm/handles_abi.h"

namespace tally::server {

class TimeSlices {
 public:
  // By ordinal; of those that are not in the list: the driver's own.
  void Set(const std::vector<std::chrono::microseconds>& slices) {
    for (size_t device = 0; device < us_.size(); ++device) {
      const auto slice = device < slices.size() ? slices[device] : std::chrono::microseconds(0);
      us_[device].store(static_cast<uint32_t>(slice.count()), std::memory_order_relaxed);
    }
  }
  // Zero: the driver's own.
  std::chrono::microseconds on(int device) const {
    return std::chrono::microseconds(us_[static_cast<size_t>(device)].load(std::memory_order_relaxed));
  }

 private:
  std::array<std::atomic<uint32_t>, shm::kMaxDevices> us_{};
};

}  // namespace tally::server
