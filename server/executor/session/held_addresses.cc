#include "server/executor/session/held_addresses.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

namespace tally::server {
namespace {

// Device memory comes in pieces of this size; smaller gaps are of no use to the driver.
constexpr uint64_t kWorthHolding = uint64_t{2} << 20;

// By the system call itself: the sanitizers' mmap would set up shadow for terabytes.
bool HoldRange(uint64_t begin, uint64_t end, int placement) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  const long got = ::syscall(SYS_mmap, begin, end - begin, PROT_NONE, kFlags | placement, -1, 0);
  if (got == static_cast<long>(begin)) return true;
  if (got != -1) ::syscall(SYS_munmap, got, end - begin);  // a kernel that does not know MAP_FIXED_NOREPLACE
  return false;
}

}  // namespace

HeldAddresses::~HeldAddresses() {
  for (const Range& range : held_) ::syscall(SYS_munmap, range.begin, range.end - range.begin);
}

void HeldAddresses::Hold() {
  std::ifstream maps("/proc/self/maps");
  uint64_t free_from = kBegin;
  std::vector<Range> gaps;
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &begin, &end) != 2) break;
    if (end <= kBegin) continue;
    // The main thread's stack grows into the gap below it.
    if (line.ends_with("[stack]")) break;
    if (begin >= free_from + kWorthHolding) gaps.push_back({free_from, begin});
    free_from = end;
  }
  const std::lock_guard lock(mutex_);
  for (const Range& gap : gaps) {
    if (HoldRange(gap.begin, gap.end, MAP_FIXED_NOREPLACE)) held_.push_back(gap);
  }
}

uint64_t HeldAddresses::size_bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const Range& range : held_) sum += range.end - range.begin;
  return sum;
}

bool HeldAddresses::IsHeldLocked(uint64_t begin, uint64_t end) const {
  for (const Range& range : held_) {
    if (begin >= range.begin && end <= range.end) return true;
  }
  return false;
}

Result<MappedRegion> HeldAddresses::Map(int fd, uint64_t size_bytes, uint64_t address, uint64_t offset_bytes) {
  const uint64_t end = address + size_bytes;
  const std::lock_guard lock(mutex_);
  if (end < address || !IsHeldLocked(address, end)) {
    return MappedRegion::MapAt(fd, size_bytes, reinterpret_cast<void*>(address), offset_bytes);
  }
  const auto after = mapped_.lower_bound(end);
  if (after != mapped_.begin() && std::prev(after)->second > address) {
    return Error(StatusCode::kAlreadyExists, fmt::format("address {:#x} is taken", address));
  }
  auto region = MappedRegion::MapOver(fd, size_bytes, reinterpret_cast<void*>(address), offset_bytes);
  if (region) mapped_.emplace(address, end);
  return region;
}

void HeldAddresses::Unmap(MappedRegion region) {
  if (!region.valid()) return;
  const uint64_t begin = reinterpret_cast<uint64_t>(region.data());
  const std::lock_guard lock(mutex_);
  const auto found = mapped_.find(begin);
  if (found == mapped_.end()) return;  // was not over held addresses: the region unmaps itself
  if (HoldRange(begin, found->second, MAP_FIXED)) region.Leak();
  mapped_.erase(found);
}

}  // namespace tally::server
