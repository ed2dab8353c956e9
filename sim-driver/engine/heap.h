// The heap of device-side malloc and free: one per memory lookup (context), shared by its grids.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "sim-driver/engine/machine.h"

namespace tally::sim_driver {

// Thread-safe.
class Heap {
 public:
  // Zero when `limit_bytes` would be exceeded.
  uint64_t Allocate(uint64_t bytes, uint64_t limit_bytes);
  // False if `address` did not come from Allocate.
  bool Free(uint64_t address);
  MemoryRange Find(uint64_t address) const;
  // Changes when something was freed, as MemoryLookup::generation.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  struct Block {
    uint64_t size_bytes = 0;
    std::unique_ptr<std::byte[]> bytes;
  };
  mutable std::mutex mutex_;
  std::map<uint64_t, Block> blocks_;  // by aligned address
  uint64_t used_bytes_ = 0;
  std::atomic<uint64_t> generation_{0};
};

}  // namespace tally::sim_driver
