// How often each function of the driver API was refused with CUDA_ERROR_NOT_SUPPORTED in this executor, whoever called
// it: by the client alone (it sends a note), or here. Thread-safe; counts only grow.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/driver/generated/driver_symbols.h"

namespace tally::server {

class RefusedCalls {
 public:
  // `symbol_index`: row of driver_api.tsv. False: there is no such row.
  bool Add(size_t symbol_index) {
    if (symbol_index >= kNumDriverSymbols) return false;
    counts_[symbol_index].fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  uint64_t count(size_t symbol_index) const { return counts_[symbol_index].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, kNumDriverSymbols> counts_{};
};

}  // namespace tally::server
