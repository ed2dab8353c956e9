#include "server/executor/session/memory_map.h"

namespace tally::server {

void MemoryMap::Count(const MemoryRange& range, bool added) {
  uint64_t* sum = range.kind == MemoryKind::kPinned ? &pinned_bytes_ : &device_bytes_;
  if (range.kind == MemoryKind::kGlobal || range.kind == MemoryKind::kMapped || range.kind == MemoryKind::kGraph)
    return;
  *sum = added ? *sum + range.size_bytes : *sum - range.size_bytes;
}

void MemoryMap::DropOrphansLocked(uint64_t begin, uint64_t end) {
  auto at = ranges_.lower_bound(begin);
  if (at != ranges_.begin()) --at;
  while (at != ranges_.end() && at->first < end) {
    const MemoryRange& range = at->second;
    const bool is_orphan = range.kind == MemoryKind::kGraph && range.owner == nullptr;
    const bool goes = is_orphan && range.address + range.size_bytes > begin;
    if (goes) NoteChangeLocked();
    at = goes ? ranges_.erase(at) : std::next(at);
  }
}

bool MemoryMap::Add(const MemoryRange& range) {
  if (range.size_bytes == 0 || range.address + range.size_bytes < range.address) return false;
  const std::lock_guard lock(mutex_);
  DropOrphansLocked(range.address, range.address + range.size_bytes);
  const auto next = ranges_.lower_bound(range.address);
  if (next != ranges_.end() && next->first < range.address + range.size_bytes) return false;
  if (next != ranges_.begin()) {
    const MemoryRange& before = std::prev(next)->second;
    if (before.address + before.size_bytes > range.address) return false;
  }
  ranges_.emplace_hint(next, range.address, range);
  NoteChangeLocked();
  Count(range, true);
  return true;
}

std::optional<MemoryRange> MemoryMap::Find(uint64_t address, uint64_t size_bytes) const {
  const std::lock_guard lock(mutex_);
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return std::nullopt;
  const MemoryRange& range = std::prev(after)->second;
  const uint64_t offset = address - range.address;
  if (range.kind == MemoryKind::kMapped) {
    if (size_bytes > UINT64_MAX - address || !ReachesLocked(std::prev(after), address + size_bytes)) {
      return std::nullopt;
    }
    return range;
  }
  if (offset > range.size_bytes || size_bytes > range.size_bytes - offset) return std::nullopt;
  return range;
}

bool MemoryMap::ReachesLocked(std::map<uint64_t, MemoryRange>::const_iterator first, uint64_t end) const {
  uint64_t reached = first->first;
  for (auto mapping = first; mapping != ranges_.end() && mapping->first == reached; ++mapping) {
    if (mapping->second.kind != MemoryKind::kMapped || mapping->second.access_devices == 0) return false;
    reached += mapping->second.size_bytes;
    if (end <= reached) return true;
  }
  return false;
}

std::optional<MemoryRange> MemoryMap::RangeAt(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return std::nullopt;
  const MemoryRange& range = std::prev(after)->second;
  if (address - range.address >= range.size_bytes) return std::nullopt;
  return range;
}

std::optional<MemoryRange> MemoryMap::Mapping(uint64_t address) const {
  const auto range = RangeAt(address);
  return range && range->kind == MemoryKind::kMapped ? range : std::nullopt;
}

std::vector<MemoryRange> MemoryMap::Mappings(uint64_t address, uint64_t size_bytes) const {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryRange> found;
  if (size_bytes == 0 || size_bytes > UINT64_MAX - address) return {};
  uint64_t reached = address;
  for (auto at = ranges_.find(address); at != ranges_.end() && reached < address + size_bytes; ++at) {
    if (at->second.kind != MemoryKind::kMapped || at->first != reached) return {};
    found.push_back(at->second);
    reached += at->second.size_bytes;
  }
  return reached == address + size_bytes ? found : std::vector<MemoryRange>();
}

std::optional<std::vector<MemoryRange>> MemoryMap::MappingsWithin(uint64_t address, uint64_t size_bytes) const {
  const std::lock_guard lock(mutex_);
  if (size_bytes == 0 || size_bytes > UINT64_MAX - address) return std::nullopt;
  const uint64_t end = address + size_bytes;
  auto at = ranges_.lower_bound(address);
  if (at != ranges_.begin() && std::prev(at)->first + std::prev(at)->second.size_bytes > address) return std::nullopt;
  std::vector<MemoryRange> found;
  for (; at != ranges_.end() && at->first < end; ++at) {
    if (at->second.kind != MemoryKind::kMapped || at->second.size_bytes > end - at->first) return std::nullopt;
    found.push_back(at->second);
  }
  return found;
}

void MemoryMap::SetAccess(uint64_t address, uint64_t size_bytes, int device, bool is_allowed) {
  const std::lock_guard lock(mutex_);
  const uint64_t bit = uint64_t{1} << device;
  NoteChangeLocked();
  for (auto at = ranges_.lower_bound(address); at != ranges_.end() && at->first < address + size_bytes; ++at) {
    if (at->second.kind != MemoryKind::kMapped) continue;
    at->second.access_devices = is_allowed ? at->second.access_devices | bit : at->second.access_devices & ~bit;
  }
}

void MemoryMap::CountPhysical(uint64_t size_bytes, bool added) {
  const std::lock_guard lock(mutex_);
  device_bytes_ = added ? device_bytes_ + size_bytes : device_bytes_ - size_bytes;
}

std::optional<MemoryRange> MemoryMap::Take(uint64_t address, MemoryKind kind, MemoryKind or_kind) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end() || (found->second.kind != kind && found->second.kind != or_kind)) return std::nullopt;
  const MemoryRange range = found->second;
  ranges_.erase(found);
  NoteChangeLocked();
  Count(range, false);
  return range;
}

void MemoryMap::RemoveOwned(const void* owner, const std::set<uint64_t>& but) {
  const std::lock_guard lock(mutex_);
  NoteChangeLocked();
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    if (at->second.owner != owner) {
      ++at;
    } else if (but.contains(at->first)) {
      at->second.owner = nullptr;
      ++at;
    } else {
      at = ranges_.erase(at);
    }
  }
}

std::vector<MemoryRange> MemoryMap::Ranges() const {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryRange> result;
  result.reserve(ranges_.size());
  for (const auto& [address, range] : ranges_) result.push_back(range);
  return result;
}

uint64_t MemoryMap::device_bytes() const {
  const std::lock_guard lock(mutex_);
  return device_bytes_;
}

uint64_t MemoryMap::pinned_bytes() const {
  const std::lock_guard lock(mutex_);
  return pinned_bytes_;
}

}  // namespace tally::server
