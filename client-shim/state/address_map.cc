#include "client-shim/state/address_map.h"

#include <mutex>

namespace tally::client_shim {

void AddressMap::Insert(Allocation allocation) {
  const std::unique_lock lock(mutex_);
  allocation.buffer_id = next_buffer_id_++;
  if (allocation.host_address == 0) allocation.host_address = allocation.address;
  if (allocation.device_address == 0) allocation.device_address = allocation.address;
  by_address_.insert_or_assign(allocation.address, allocation);
}

const Allocation* AddressMap::FindLocked(uint64_t address) const {
  auto next = by_address_.upper_bound(address);
  if (next == by_address_.begin()) return nullptr;
  const Allocation& candidate = std::prev(next)->second;
  return address - candidate.address < candidate.size_bytes ? &candidate : nullptr;
}

std::optional<Allocation> AddressMap::Find(uint64_t address) const {
  const std::shared_lock lock(mutex_);
  const Allocation* found = FindLocked(address);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

std::optional<Allocation> AddressMap::FindOverlap(uint64_t address, uint64_t size_bytes) const {
  const std::shared_lock lock(mutex_);
  if (const Allocation* found = FindLocked(address); found != nullptr) return *found;
  const auto next = by_address_.lower_bound(address);
  if (next == by_address_.end() || next->first - address >= size_bytes) return std::nullopt;
  return next->second;
}

bool AddressMap::Covers(uint64_t address, uint64_t size_bytes) const {
  const std::shared_lock lock(mutex_);
  const Allocation* found = FindLocked(address);
  if (found == nullptr || found->Contains(address, size_bytes)) return found != nullptr;
  if (found->kind != MemoryKind::kMapped || size_bytes > UINT64_MAX - address) return false;
  uint64_t reached = found->address;
  for (auto at = by_address_.find(reached); at != by_address_.end() && at->first == reached; ++at) {
    if (at->second.kind != MemoryKind::kMapped) return false;
    reached += at->second.size_bytes;
    if (address + size_bytes <= reached) return true;
  }
  return false;
}

std::optional<Allocation> AddressMap::Remove(uint64_t address) {
  const std::unique_lock lock(mutex_);
  const auto found = by_address_.find(address);
  if (found == by_address_.end()) return std::nullopt;
  Allocation removed = found->second;
  by_address_.erase(found);
  return removed;
}

template <typename Predicate>
std::vector<Allocation> AddressMap::RemoveIf(Predicate is_doomed) {
  std::vector<Allocation> removed;
  const std::unique_lock lock(mutex_);
  for (auto it = by_address_.begin(); it != by_address_.end();) {
    if (is_doomed(it->second)) {
      removed.push_back(it->second);
      it = by_address_.erase(it);
    } else {
      ++it;
    }
  }
  return removed;
}

std::vector<Allocation> AddressMap::RemoveContext(uint32_t context) {
  return RemoveIf([context](const Allocation& allocation) { return allocation.context == context; });
}

std::vector<Allocation> AddressMap::RemoveOwner(uint64_t owner) {
  return RemoveIf([owner](const Allocation& allocation) { return allocation.owner == owner; });
}

void AddressMap::SetSyncMemoryOperations(uint64_t address, bool value) {
  const std::unique_lock lock(mutex_);
  if (const Allocation* found = FindLocked(address); found != nullptr)
    by_address_[found->address].sync_memory_operations = value;
}

}  // namespace tally::client_shim
