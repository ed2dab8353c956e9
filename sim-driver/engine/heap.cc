#include "sim-driver/engine/heap.h"

#include <new>

namespace tally::sim_driver {

uint64_t Heap::Allocate(uint64_t bytes, uint64_t limit_bytes) {
  constexpr uint64_t kAlign = 16;
  std::lock_guard lock(mutex_);
  if (bytes == 0 || bytes > limit_bytes || used_bytes_ > limit_bytes - bytes) return 0;
  std::unique_ptr<std::byte[]> storage(new (std::nothrow) std::byte[bytes + kAlign]);
  if (!storage) return 0;
  uint64_t address = (reinterpret_cast<uint64_t>(storage.get()) + kAlign - 1) / kAlign * kAlign;
  blocks_[address] = {bytes, std::move(storage)};
  used_bytes_ += bytes;
  return address;
}

bool Heap::Free(uint64_t address) {
  std::lock_guard lock(mutex_);
  auto found = blocks_.find(address);
  if (found == blocks_.end()) return false;
  generation_.fetch_add(1, std::memory_order_release);
  used_bytes_ -= found->second.size_bytes;
  blocks_.erase(found);
  return true;
}

MemoryRange Heap::Find(uint64_t address) const {
  std::lock_guard lock(mutex_);
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return {};
  auto found = std::prev(after);
  if (address - found->first >= found->second.size_bytes) return {};
  return {found->first, found->second.size_bytes, true};
}

}  // namespace tally::sim_driver
