#include "sim-driver/api/memory_map.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "sim-driver/api/live_objects.h"
#include "sim-driver/api/texture_object.h"

namespace tally::sim_driver {
namespace {

constexpr uint64_t kPage = DeviceWindow::kPage;

uint64_t AlignUp(uint64_t value, uint64_t alignment) { return (value + alignment - 1) & ~(alignment - 1); }
uint64_t AlignDown(uint64_t value, uint64_t alignment) { return value & ~(alignment - 1); }

}  // namespace

MemoryMap& MemoryMap::Get() {
  static MemoryMap& map = *new MemoryMap();
  return map;
}

MemoryMap::MemoryMap() : cursor_(window_.start()) {
  RegisterLive("memory-ranges", [this] {
    const std::shared_lock lock(mutex_);
    return ranges_.size();
  });
  RegisterLive("reserved-ranges", [this] {
    const std::shared_lock lock(mutex_);
    return reserved_.size();
  });
}

void MemoryMap::BumpLocked() {
  for (MemoryLookup* lookup : lookups_) lookup->BumpGeneration();
}

void MemoryMap::AddLookup(MemoryLookup* lookup) {
  const std::unique_lock lock(mutex_);
  lookups_.push_back(lookup);
}

void MemoryMap::RemoveLookup(MemoryLookup* lookup) {
  const std::unique_lock lock(mutex_);
  std::erase(lookups_, lookup);
}

MemoryRange ContextMemory::Find(uint64_t address) const {
  const auto region = MemoryMap::Get().Find(address);
  if (!region || region->kind == MemoryKind::kReserved || !region->IsReadableBy(device_)) return {};
  const bool is_of_device = region->kind == MemoryKind::kDevice || region->kind == MemoryKind::kImported;
  if (is_of_device && region->device != device_ &&
      (peers_.load(std::memory_order_acquire) >> region->device & 1) == 0) {
    return {};
  }
  return {.base = region->base, .size_bytes = region->num_bytes, .is_writable = region->IsWritableBy(device_)};
}

std::shared_ptr<const Image> ContextMemory::FindImage(uint64_t object) const { return FindImageObject(object); }

bool ContextMemory::SetPeer(int device, bool is_enabled) {
  const uint32_t bit = 1u << device;
  const uint32_t before = is_enabled ? peers_.fetch_or(bit) : peers_.fetch_and(~bit);
  MemoryMap::Get().ForgetLookups();
  return ((before & bit) != 0) != is_enabled;
}

uint64_t MemoryMap::NextBufferId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

bool MemoryMap::OverlapsLocked(const std::map<uint64_t, MemoryRegion>& ranges, uint64_t begin, uint64_t end) const {
  auto next = ranges.lower_bound(begin);
  if (next != ranges.end() && next->first < end) return true;
  return next != ranges.begin() && std::prev(next)->second.end() > begin;
}

std::optional<uint64_t> MemoryMap::FindGapLocked(uint64_t num_bytes, uint64_t alignment) {
  const auto end_of_last_before = [this](const std::map<uint64_t, MemoryRegion>& ranges, uint64_t end) {
    const auto next = ranges.lower_bound(end);
    return next == ranges.begin() ? window_.start() : std::prev(next)->second.end();
  };
  for (uint64_t from : {cursor_, window_.start()}) {
    uint64_t candidate = AlignUp(from, alignment);
    while (candidate + num_bytes < window_.end()) {
      // One byte more than asked, so that two ranges never touch.
      const uint64_t end = candidate + num_bytes + 1;
      const uint64_t busy_until = std::max(end_of_last_before(ranges_, end), end_of_last_before(reserved_, end));
      if (busy_until < candidate || (busy_until == candidate && candidate == window_.start())) return candidate;
      candidate = AlignUp(busy_until + 1, alignment);
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> MemoryMap::Allocate(MemoryRegion shape, uint64_t alignment) {
  if (shape.num_bytes == 0 || shape.num_bytes > window_.end() - window_.start()) return std::nullopt;
  const bool is_reserved = shape.kind == MemoryKind::kReserved;
  if (alignment == 0) alignment = shape.num_bytes >= (1 << 20) ? kPageGranularity : kGranularity;
  // Reservations own whole 2 MiB chunks: their memory comes and goes by mmap.
  if (is_reserved) alignment = std::max(alignment, kPageGranularity);
  const std::unique_lock lock(mutex_);
  if (reuses_addresses_) cursor_ = window_.start();
  if (is_reserved) cursor_ = AlignUp(cursor_, kPageGranularity);
  const auto base = FindGapLocked(shape.num_bytes, alignment);
  if (!base) return std::nullopt;
  cursor_ = *base + shape.num_bytes + 1;
  if (is_reserved) cursor_ = AlignUp(cursor_, kPageGranularity);
  shape.base = *base;
  if (shape.buffer_id == 0) shape.buffer_id = NextBufferId();
  (is_reserved ? reserved_ : ranges_).emplace(*base, shape);
  return base;
}

bool MemoryMap::AllocateAt(MemoryRegion shape) {
  const std::unique_lock lock(mutex_);
  const uint64_t end = shape.base + shape.num_bytes;
  if (shape.num_bytes == 0 || end < shape.base || shape.base < window_.start() || end > window_.end()) return false;
  // One byte on either side, so that two ranges never touch.
  for (const auto* ranges : {&ranges_, &reserved_}) {
    if (OverlapsLocked(*ranges, shape.base == window_.start() ? shape.base : shape.base - 1, end + 1)) return false;
  }
  if (shape.buffer_id == 0) shape.buffer_id = NextBufferId();
  (shape.kind == MemoryKind::kReserved ? reserved_ : ranges_).emplace(shape.base, shape);
  return true;
}

void MemoryMap::ReuseAddresses() {
  const std::unique_lock lock(mutex_);
  reuses_addresses_ = true;
}

bool MemoryMap::Insert(const MemoryRegion& range) {
  const std::unique_lock lock(mutex_);
  if (range.num_bytes == 0 || range.base + range.num_bytes < range.base) return false;
  if (OverlapsLocked(ranges_, range.base, range.end())) return false;
  if (range.kind != MemoryKind::kMapped && OverlapsLocked(reserved_, range.base, range.end())) return false;
  ranges_.emplace(range.base, range);
  return true;
}

// Gives back the whole pages of [begin, end) that no live range shares. Under the lock, before anyone can be given the
// same addresses.
void MemoryMap::ReturnPagesLocked(uint64_t begin, uint64_t end) {
  uint64_t first = AlignDown(begin, kPage);
  uint64_t last = AlignUp(end, kPage);
  const auto next = ranges_.lower_bound(begin);
  if (next != ranges_.begin() && std::prev(next)->second.end() > first) first = AlignUp(begin, kPage);
  if (next != ranges_.end() && next->first < last) last = AlignDown(end, kPage);
  if (first < last) window_.ReturnPages(first, last);
}

std::optional<MemoryRegion> MemoryMap::Remove(uint64_t base) {
  const std::unique_lock lock(mutex_);
  for (auto* ranges : {&ranges_, &reserved_}) {
    const auto found = ranges->find(base);
    if (found == ranges->end()) continue;
    const MemoryRegion range = found->second;
    ranges->erase(found);
    BumpLocked();
    if (range.kind == MemoryKind::kDevice || range.kind == MemoryKind::kManaged) {
      ReturnPagesLocked(range.base, range.end());
    } else if (range.kind == MemoryKind::kPinned) {
      munmap(reinterpret_cast<void*>(range.base), AlignUp(range.num_bytes, kPage));
    }
    return range;
  }
  return std::nullopt;
}

std::vector<MemoryRegion> MemoryMap::RemoveContext(uint64_t context) {
  std::vector<MemoryRegion> doomed;
  {
    const std::shared_lock lock(mutex_);
    for (const auto& [base, range] : ranges_) {
      if (range.context == context) doomed.push_back(range);
    }
  }
  for (const MemoryRegion& range : doomed) Remove(range.base);
  return doomed;
}

std::optional<MemoryRegion> MemoryMap::Find(uint64_t address) const {
  const std::shared_lock lock(mutex_);
  for (const auto* ranges : {&ranges_, &reserved_}) {
    auto next = ranges->upper_bound(address);
    if (next == ranges->begin()) continue;
    const MemoryRegion& range = std::prev(next)->second;
    if (address < range.end()) return range;
  }
  return std::nullopt;
}

bool MemoryMap::IsAccessible(uint64_t address, uint64_t num_bytes, bool is_write) const {
  if (num_bytes == 0) return true;
  if (address + num_bytes < address) return false;
  const uint64_t end = address + num_bytes;
  const std::shared_lock lock(mutex_);
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return false;
  auto it = std::prev(next);
  while (it != ranges_.end() && it->first <= address && address < it->second.end()) {
    const MemoryRegion& range = it->second;
    if (range.readable_by == 0 || (is_write && range.writable_by == 0)) return false;
    if (end <= range.end()) return true;
    // Only mappings join up; two allocations never touch.
    address = range.end();
    ++it;
  }
  return false;
}

std::vector<MemoryRegion> MemoryMap::MappedWithin(uint64_t begin, uint64_t end) const {
  std::vector<MemoryRegion> mapped;
  const std::shared_lock lock(mutex_);
  for (auto it = ranges_.lower_bound(begin); it != ranges_.end() && it->first < end; ++it) mapped.push_back(it->second);
  return mapped;
}

bool MemoryMap::IsReserved(uint64_t address, uint64_t num_bytes) const {
  const std::shared_lock lock(mutex_);
  return IsReservedLocked(address, num_bytes);
}

bool MemoryMap::IsReservedLocked(uint64_t address, uint64_t num_bytes) const {
  const auto after = reserved_.upper_bound(address);
  if (after == reserved_.begin()) return false;
  const MemoryRegion& around = std::prev(after)->second;
  return address < around.end() && num_bytes <= around.end() - address;
}

bool MemoryMap::MapPhysical(const MemoryRegion& range, int memory_fd, uint64_t fd_offset) {
  const std::unique_lock lock(mutex_);
  if (!IsReservedLocked(range.base, range.num_bytes)) return false;
  if (OverlapsLocked(ranges_, range.base, range.end())) return false;
  // Readable at once: access rights are kept in `range`, set by cuMemSetAccess.
  if (!DeviceWindow::Cover(AlignDown(range.base, kPage), AlignUp(range.end(), kPage), memory_fd, fd_offset)) {
    return false;
  }
  ranges_.emplace(range.base, range);
  return true;
}

bool MemoryMap::UnmapPhysical(uint64_t base, MemoryKind kind) {
  const std::unique_lock lock(mutex_);
  const auto found = ranges_.find(base);
  if (found == ranges_.end() || found->second.kind != kind) return false;
  const MemoryRegion range = found->second;
  ranges_.erase(found);
  BumpLocked();
  return window_.Uncover(AlignDown(range.base, kPage), AlignUp(range.end(), kPage));
}

}  // namespace tally::sim_driver
