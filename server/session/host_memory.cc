#include "server/session/host_memory.h"

#include <fmt/format.h>

#include <vector>

namespace tally::server {
namespace {
constexpr uint64_t kPageBytes = 4096;
// An address outside our bookkeeping that is taken all the same (a library mapped there): try the next gap, so often.
constexpr int kAttempts = 64;
}  // namespace

uint64_t HostWindow::Reserve(uint64_t size_bytes) {
  if (size_bytes == 0 || size_bytes > kEnd - kBegin) return 0;
  const uint64_t size = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::lock_guard lock(mutex_);
  for (int lap = 0; lap < 2; ++lap) {
    uint64_t candidate = lap == 0 ? next_ : kBegin;
    while (candidate + size <= kEnd) {
      auto after = used_.lower_bound(candidate);
      if (after != used_.begin()) {
        const auto before = std::prev(after);
        if (before->first + before->second > candidate) {
          candidate = before->first + before->second;
          continue;
        }
      }
      if (after != used_.end() && after->first < candidate + size) {
        candidate = after->first + after->second;
        continue;
      }
      used_.emplace(candidate, size);
      next_ = candidate + size;
      return candidate;
    }
  }
  return 0;
}

void HostWindow::Release(uint64_t address) {
  const std::lock_guard lock(mutex_);
  used_.erase(address);
}

HostMemory::~HostMemory() { FreeAll(); }

Result<HostMemory::Allocation> HostMemory::Allocate(uint64_t size_bytes, CUresult* result) {
  *result = CUDA_ERROR_OUT_OF_MEMORY;
  if (size_bytes == 0 || size_bytes > HostWindow::kEnd - HostWindow::kBegin) {
    return Error(StatusCode::kResourceExhausted, fmt::format("{} bytes of pinned memory", size_bytes));
  }
  Allocation allocation;
  allocation.size_bytes = (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  auto fd = CreateSealedMemfd("tally-pinned", allocation.size_bytes);
  if (!fd) return std::unexpected(fd.error());
  MappedRegion region;
  std::vector<uint64_t> taken;
  for (int attempt = 0; attempt < kAttempts && !region.valid(); ++attempt) {
    allocation.address = window_.Reserve(allocation.size_bytes);
    if (allocation.address == 0) break;
    auto mapped = addresses_.Map(fd->get(), allocation.size_bytes, allocation.address);
    if (mapped) {
      region = std::move(*mapped);
    } else {
      taken.push_back(allocation.address);
    }
  }
  for (const uint64_t address : taken) window_.Release(address);
  if (!region.valid()) return Error(StatusCode::kResourceExhausted, "no free addresses for pinned memory");
  *result = driver_.cuMemHostRegister_v2(region.data(), allocation.size_bytes,
                                         CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (*result != CUDA_SUCCESS) {
    addresses_.Unmap(std::move(region));
    window_.Release(allocation.address);
    return Error(StatusCode::kUnknown, "register pinned memory: " + CudaErrorName(driver_, *result));
  }
  allocation.fd = std::move(*fd);
  const std::lock_guard lock(mutex_);
  regions_.emplace(allocation.address, std::move(region));
  return allocation;
}

void HostMemory::Dispose(uint64_t address, MappedRegion region) {
  driver_.cuMemHostUnregister(region.data());
  addresses_.Unmap(std::move(region));
  window_.Release(address);
}

bool HostMemory::Free(uint64_t address) {
  MappedRegion region;
  {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(address);
    if (found == regions_.end()) return false;
    region = std::move(found->second);
    regions_.erase(found);
  }
  Dispose(address, std::move(region));
  return true;
}

bool HostMemory::Reject(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(address);
  if (found == regions_.end()) return false;
  rejected_.insert(regions_.extract(found));
  return true;
}

void HostMemory::FreeAll() {
  std::map<uint64_t, MappedRegion> all;
  {
    const std::lock_guard lock(mutex_);
    all = std::move(regions_);
    all.merge(rejected_);
    regions_.clear();
    rejected_.clear();
  }
  for (auto& [address, region] : all) Dispose(address, std::move(region));
}

uint64_t HostMemory::size_bytes() {
  const std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [address, region] : regions_) sum += region.size_bytes();
  for (const auto& [address, region] : rejected_) sum += region.size_bytes();
  return sum;
}

}  // namespace tally::server
