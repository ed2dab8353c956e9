#include "server/executor/session/host_memory.h"

#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <vector>

#include "server/executor/session/truncation_guard.h"

namespace tally::server {
namespace {
constexpr uint64_t kPageBytes = 4096;
// An address outside our bookkeeping that is taken all the same (a library mapped there): try the next gap, so often.
constexpr int kAttempts = 64;
// Where a client may wish to have its memory: not so low that a null pointer with an offset would hit it, not where the
// stacks of this process grow, not where the kernel does not map.
constexpr uint64_t kLowestWish = uint64_t{1} << 24;
constexpr uint64_t kHighestWish = 0x7ffb00000000;

// Whether a peer's descriptor can be mapped without trusting it: a sealed memfd, or a file in memory whose pages may
// vanish when it is truncated, which TruncationGuard deals with.
Status CheckFile(int fd, uint64_t offset_bytes, uint64_t size_bytes) {
  if (CheckSealedMemfd(fd, offset_bytes + size_bytes).ok()) return OkStatus();
  struct stat file {};
  struct statfs system {};
  if (::fstat(fd, &file) != 0 || ::fstatfs(fd, &system) != 0) return StatusFromErrno(errno, "stat registered memory");
  if (!S_ISREG(file.st_mode) || system.f_type != TMPFS_MAGIC) {
    return Status(StatusCode::kInvalidArgument, "registered memory is not a file of a tmpfs");
  }
  if (static_cast<uint64_t>(file.st_size) < offset_bytes + size_bytes) {
    return Status(StatusCode::kInvalidArgument, "registered memory ends beyond its file");
  }
  return OkStatus();
}

Status NoMoreAllowed() {
  return Status(StatusCode::kResourceExhausted, "as much pinned memory as the session or its user may hold");
}
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
  if (!account_.Take(Held::kPinnedBytes, allocation.size_bytes)) return std::unexpected(NoMoreAllowed());
  auto fd = CreateSealedMemfd("tally-pinned", allocation.size_bytes);
  auto region = fd ? MapInWindow(fd->get(), 0, allocation.size_bytes, &allocation.address)
                   : Result<MappedRegion>(std::unexpected(fd.error()));
  if (!region) {
    account_.Return(Held::kPinnedBytes, allocation.size_bytes);
    return std::unexpected(region.error());
  }
  *result = driver_.cuMemHostRegister_v2(region->data(), allocation.size_bytes,
                                         CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (*result != CUDA_SUCCESS) {
    Unplace(allocation.address, std::move(*region));
    return Error(StatusCode::kUnknown, "register pinned memory: " + CudaErrorName(driver_, *result));
  }
  allocation.fd = std::move(*fd);
  const std::lock_guard lock(mutex_);
  regions_.emplace(allocation.address, std::move(*region));
  return allocation;
}

Result<MappedRegion> HostMemory::MapInWindow(int fd, uint64_t offset_bytes, uint64_t size_bytes, uint64_t* address) {
  Result<MappedRegion> region = Error(StatusCode::kResourceExhausted, "no free addresses for pinned memory");
  std::vector<uint64_t> taken;
  for (int attempt = 0; attempt < kAttempts && !region; ++attempt) {
    *address = window_.Reserve(size_bytes);
    if (*address == 0) break;
    region = addresses_.Map(fd, size_bytes, *address, offset_bytes);
    if (!region) taken.push_back(*address);
  }
  for (const uint64_t other : taken) window_.Release(other);
  return region;
}

Result<uint64_t> HostMemory::Register(int fd, uint64_t offset_bytes, uint64_t size_bytes, uint64_t wish,
                                      CUresult* result) {
  *result = CUDA_ERROR_INVALID_VALUE;
  constexpr uint64_t kMaxBytes = HostWindow::kEnd - HostWindow::kBegin;
  if (size_bytes == 0 || size_bytes > kMaxBytes || offset_bytes > INT64_MAX - size_bytes ||
      (offset_bytes | size_bytes | wish) % kPageBytes != 0) {
    return Error(StatusCode::kInvalidArgument, "registered memory is not of whole pages");
  }
  if (!account_.Take(Held::kPinnedBytes, size_bytes)) {
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    return std::unexpected(NoMoreAllowed());
  }
  if (const Status status = CheckFile(fd, offset_bytes, size_bytes); !status.ok()) {
    account_.Return(Held::kPinnedBytes, size_bytes);
    return std::unexpected(status);
  }
  *result = CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t address = wish;
  Result<MappedRegion> region = Error(StatusCode::kAlreadyExists, "no place for a client to choose");
  const bool is_in_window = wish < HostWindow::kEnd && wish + size_bytes > HostWindow::kBegin;
  if (wish >= kLowestWish && wish < kHighestWish && size_bytes < kHighestWish - wish && !is_in_window) {
    region = addresses_.Map(fd, size_bytes, wish, offset_bytes);
  }
  if (!region) region = MapInWindow(fd, offset_bytes, size_bytes, &address);
  if (!region) {
    account_.Return(Held::kPinnedBytes, size_bytes);
    return std::unexpected(region.error());
  }
  if (!TruncationGuard::Cover(address, size_bytes)) {
    Unplace(address, std::move(*region));
    return Error(StatusCode::kResourceExhausted, "too much registered memory");
  }
  *result = driver_.cuMemHostRegister_v2(region->data(), size_bytes,
                                         CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (*result != CUDA_SUCCESS) {
    Unplace(address, std::move(*region));
    return Error(StatusCode::kUnknown, "register the client's memory: " + CudaErrorName(driver_, *result));
  }
  const std::lock_guard lock(mutex_);
  regions_.emplace(address, std::move(*region));
  return address;
}

void HostMemory::Dispose(uint64_t address, MappedRegion region) {
  driver_.cuMemHostUnregister(region.data());
  Unplace(address, std::move(region));
}

void HostMemory::Unplace(uint64_t address, MappedRegion region) {
  TruncationGuard::Uncover(address);
  account_.Return(Held::kPinnedBytes, region.size_bytes());
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

bool HostMemory::WasTruncated() {
  const uint64_t count = TruncationGuard::NumTruncations();
  if (count == num_truncations_seen_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(mutex_);
  num_truncations_seen_.store(count, std::memory_order_relaxed);
  const auto was_truncated = [](const auto& entry) { return TruncationGuard::WasTruncated(entry.first); };
  return std::any_of(regions_.begin(), regions_.end(), was_truncated) ||
         std::any_of(rejected_.begin(), rejected_.end(), was_truncated);
}

}  // namespace tally::server
