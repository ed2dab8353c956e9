#include "sim-driver/api/memory_map.h"

#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "sim-driver/api/live_objects.h"
#include "sim-driver/api/texture_object.h"

namespace tally::sim_driver {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLastWindowStart = 0x7d00'0000'0000;
// What the thread sanitizer leaves to programs for mappings at addresses of their choice.
constexpr uint64_t kLowWindowStart = 0x10'0000'0000, kLastLowWindowStart = 0x60'0000'0000;
constexpr uint64_t kWindowStep = 0x8'0000'0000;  // 32 GiB
// Tried in turn: a process with a limit of addresses or data, or a system that promises no more memory than it has,
// gets a smaller window.
constexpr uint64_t kWindowSizes[] = {uint64_t{256} << 30, uint64_t{64} << 30, uint64_t{8} << 30, uint64_t{2} << 30};

uint64_t AlignUp(uint64_t value, uint64_t alignment) { return (value + alignment - 1) & ~(alignment - 1); }
uint64_t AlignDown(uint64_t value, uint64_t alignment) { return value & ~(alignment - 1); }

// By the system call itself: the sanitizers' mmap would set up shadow for the whole window.
uint64_t MapRaw(uint64_t address, uint64_t num_bytes, int protection, int flags, int fd, uint64_t offset) {
  const long result = syscall(SYS_mmap, address, num_bytes, protection, flags, fd, offset);
  return result == -1 ? 0 : static_cast<uint64_t>(result);
}

// Fresh pages of zeros of the window.
uint64_t MapZeros(uint64_t address, uint64_t num_bytes, int flags) {
  const uint64_t got =
      MapRaw(address, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  // The same everywhere in the window: mappings that differ do not become one.
  if (got != 0) madvise(reinterpret_cast<void*>(got), num_bytes, MADV_DONTDUMP);
  return got;
}

uint64_t MapWindow(uint64_t num_bytes) {
  constexpr std::pair<uint64_t, uint64_t> kPlaces[] = {{MemoryMap::kWindowStart, kLastWindowStart},
                                                       {kLowWindowStart, kLastLowWindowStart}};
  for (const auto& [first, last] : kPlaces)
    for (uint64_t start = first; start < last; start += kWindowStep) {
      const uint64_t got = MapZeros(start, num_bytes, MAP_FIXED_NOREPLACE);
      if (got == start) return got;
      if (got != 0) munmap(reinterpret_cast<void*>(got), num_bytes);  // a kernel that ignores the flag
    }
  return 0;
}

}  // namespace

MemoryMap& MemoryMap::Get() {
  static MemoryMap& map = *new MemoryMap();
  return map;
}

MemoryMap::MemoryMap() {
  for (const uint64_t num_bytes : kWindowSizes) {
    window_start_ = MapWindow(num_bytes);
    if (window_start_ == 0) continue;
    window_end_ = window_start_ + num_bytes;
    // Linux joins neighbours only if their pages are kept in one book (anon_vma), which a mapping gets with its first
    // page and hands on when it is cut: what UnmapPhysical puts in place joins both sides.
    *reinterpret_cast<volatile char*>(window_start_) = 0;
    madvise(reinterpret_cast<void*>(window_start_), kPage, MADV_DONTNEED);
    break;
  }
  cursor_ = window_start_;
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
  if (!region || region->kind == MemoryKind::kReserved || !region->is_readable) return {};
  if (region->kind == MemoryKind::kDevice && region->device != device_ &&
      (peers_.load(std::memory_order_acquire) >> region->device & 1) == 0) {
    return {};
  }
  return {.base = region->base, .size_bytes = region->num_bytes, .is_writable = region->is_writable};
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
    return next == ranges.begin() ? window_start_ : std::prev(next)->second.end();
  };
  for (uint64_t from : {cursor_, window_start_}) {
    uint64_t candidate = AlignUp(from, alignment);
    while (candidate + num_bytes < window_end_) {
      // One byte more than asked, so that two ranges never touch.
      const uint64_t end = candidate + num_bytes + 1;
      const uint64_t busy_until = std::max(end_of_last_before(ranges_, end), end_of_last_before(reserved_, end));
      if (busy_until < candidate || (busy_until == candidate && candidate == window_start_)) return candidate;
      candidate = AlignUp(busy_until + 1, alignment);
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> MemoryMap::Allocate(MemoryRegion shape, uint64_t alignment) {
  if (shape.num_bytes == 0 || shape.num_bytes > window_end_ - window_start_) return std::nullopt;
  const bool is_reserved = shape.kind == MemoryKind::kReserved;
  if (alignment == 0) alignment = shape.num_bytes >= (1 << 20) ? kPageGranularity : kGranularity;
  // Reservations own whole 2 MiB chunks: their memory comes and goes by mmap.
  if (is_reserved) alignment = std::max(alignment, kPageGranularity);
  const std::unique_lock lock(mutex_);
  if (reuses_addresses_) cursor_ = window_start_;
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
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
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
    if (!range.is_readable || (is_write && !range.is_writable)) return false;
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
  if (MapRaw(range.base, range.num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory_fd, fd_offset) == 0) {
    return false;
  }
  ranges_.emplace(range.base, range);
  return true;
}

bool MemoryMap::UnmapPhysical(uint64_t base) {
  const std::unique_lock lock(mutex_);
  const auto found = ranges_.find(base);
  if (found == ranges_.end() || found->second.kind != MemoryKind::kMapped) return false;
  const MemoryRegion range = found->second;
  ranges_.erase(found);
  BumpLocked();
  return MapZeros(range.base, range.num_bytes, MAP_FIXED) != 0;
}

}  // namespace tally::sim_driver
