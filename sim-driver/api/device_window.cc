#include "sim-driver/api/device_window.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "base/mapped_region.h"

namespace tally::sim_driver {
namespace {

constexpr uint64_t kLastStart = 0x7d00'0000'0000;
// What the thread sanitizer leaves to programs for mappings at addresses of their choice.
constexpr uint64_t kLowStart = 0x10'0000'0000, kLastLowStart = 0x60'0000'0000;
constexpr uint64_t kStep = 0x8'0000'0000;  // 32 GiB
// Tried in turn: a process with a limit of addresses or of files, or a system that promises no more memory than it has,
// gets a smaller window.
constexpr uint64_t kSizes[] = {uint64_t{256} << 30, uint64_t{64} << 30, uint64_t{8} << 30, uint64_t{2} << 30};

// By the system call itself: the sanitizers' mmap would set up shadow for the whole window. 0: refused.
uint64_t MapShared(uint64_t address, uint64_t num_bytes, int flags, int fd, uint64_t offset) {
  const long result =
      syscall(SYS_mmap, address, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | flags, fd, offset);
  if (result == -1) return 0;
  // The same everywhere in the window: mappings that differ do not become one.
  madvise(reinterpret_cast<void*>(result), num_bytes, MADV_DONTDUMP);
  return static_cast<uint64_t>(result);
}

uint64_t MapSomewhere(uint64_t num_bytes, int fd) {
  constexpr std::pair<uint64_t, uint64_t> kPlaces[] = {{DeviceWindow::kPreferredStart, kLastStart},
                                                       {kLowStart, kLastLowStart}};
  for (const auto& [first, last] : kPlaces)
    for (uint64_t start = first; start < last; start += kStep) {
      const uint64_t got = MapShared(start, num_bytes, MAP_FIXED_NOREPLACE, fd, 0);
      if (got == start) return got;
      if (got != 0) munmap(reinterpret_cast<void*>(got), num_bytes);  // a kernel that ignores the flag
    }
  return 0;
}

}  // namespace

DeviceWindow::DeviceWindow() {
  for (const uint64_t num_bytes : kSizes) {
    if (Open(num_bytes)) return;
  }
}

bool DeviceWindow::Open(uint64_t num_bytes) {
  const uint64_t file_bytes = num_bytes + kSharedTailBytes;
  // Beyond it ftruncate does not only fail, it ends the process by a signal.
  struct rlimit limit {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < file_bytes) return false;
  auto fd = CreateSealedMemfd("tally-sim-window", file_bytes, kPage);
  if (!fd) return false;
  const uint64_t tail = MapShared(0, kSharedTailBytes, 0, fd->get(), num_bytes);
  if (tail == 0) return false;
  start_ = MapSomewhere(num_bytes, fd->get());
  if (start_ == 0) {
    munmap(reinterpret_cast<void*>(tail), kSharedTailBytes);
    return false;
  }
  end_ = start_ + num_bytes;
  fd_ = std::move(*fd);
  tail_ = reinterpret_cast<std::byte*>(tail);
  return true;
}

void DeviceWindow::ReturnPages(uint64_t begin, uint64_t end) const {
  fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin - start_),
            static_cast<off_t>(end - begin));
}

bool DeviceWindow::Cover(uint64_t begin, uint64_t end, int fd, uint64_t fd_offset) {
  return MapShared(begin, end - begin, MAP_FIXED, fd, fd_offset) != 0;
}

bool DeviceWindow::Uncover(uint64_t begin, uint64_t end) const {
  return MapShared(begin, end - begin, MAP_FIXED, fd_.get(), begin - start_) != 0;
}

}  // namespace tally::sim_driver
