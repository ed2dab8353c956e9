// Memory for grids of a Machine that stands alone, without a driver around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "sim-driver/engine/machine.h"

namespace tally::sim_driver {

// Allocations on the host heap, as the driver's context would keep them.
class TestMemory final : public MemoryLookup {
 public:
  MemoryRange Find(uint64_t address) const override {
    std::lock_guard lock(mutex_);
    auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return {};
    auto found = std::prev(after);
    if (address - found->first >= found->second.size()) return {};
    return {found->first, found->second.size(), true};
  }
  uint64_t Allocate(size_t bytes) {
    std::vector<std::byte> block(bytes + 0);
    auto address = reinterpret_cast<uint64_t>(block.data());
    std::lock_guard lock(mutex_);
    blocks_[address] = std::move(block);
    return address;
  }
  void Free(uint64_t address) {
    std::lock_guard lock(mutex_);
    BumpGeneration();
    retired_.push_back(std::move(blocks_[address]));  // so that a stale access would read, not crash
    blocks_.erase(address);
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, std::vector<std::byte>> blocks_;
  std::vector<std::vector<std::byte>> retired_;
};

}  // namespace tally::sim_driver
