#include "client-shim/state/page_swap.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "client-shim/state/own_mappings.h"

// Headers of older systems lack what newer kernels have.
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tally::client_shim {
namespace {

// How much is replaced at a time, which is how long a writer waits, or how long a write may be lost.
constexpr uint64_t kGuardedStepBytes = uint64_t{1} << 20;
constexpr uint64_t kUnguardedStepBytes = uint64_t{64} << 10;

void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// Holds writers of a range back. Does nothing where the kernel does not offer it.
class WriteBarrier {
 public:
  WriteBarrier(uint64_t begin, uint64_t size_bytes) : fd_(Open()) {
    if (fd_ < 0) return;
    uffdio_register area{};
    area.range = {begin, size_bytes};
    area.mode = UFFDIO_REGISTER_MODE_WP;
    if (::ioctl(fd_, UFFDIO_REGISTER, &area) != 0) Close();
  }
  ~WriteBarrier() { Close(); }  // whoever still waits goes on
  WriteBarrier(const WriteBarrier&) = delete;
  WriteBarrier& operator=(const WriteBarrier&) = delete;

  bool is_effective() const { return fd_ >= 0; }

  void Raise(uint64_t begin, uint64_t size_bytes) {
    if (fd_ < 0) return;
    Populate(begin, size_bytes);
    uffdio_writeprotect protect{};
    protect.range = {begin, size_bytes};
    protect.mode = UFFDIO_WRITEPROTECT_MODE_WP;
    ::ioctl(fd_, UFFDIO_WRITEPROTECT, &protect);
  }
  // After the pages were replaced: the new ones are not protected.
  void WakeWriters(uint64_t begin, uint64_t size_bytes) {
    uffdio_range range{begin, size_bytes};
    if (fd_ >= 0) ::ioctl(fd_, UFFDIO_WAKE, &range);
  }

 private:
  static int Open() {
    // Shared pages can be protected since 5.19.
    for (const uint64_t features :
         {UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM, UFFD_FEATURE_PAGEFAULT_FLAG_WP}) {
      // With privilege also system calls that write there wait; without, they fail with EFAULT in that moment.
      int fd = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
      if (fd < 0) fd = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
      if (fd < 0) return -1;
      uffdio_api api{};
      api.api = UFFD_API;
      api.features = features;
      if (::ioctl(fd, UFFDIO_API, &api) == 0) return fd;
      ::close(fd);
    }
    return -1;
  }
  // Only pages that are there can be protected.
  static void Populate(uint64_t begin, uint64_t size_bytes) {
    if (::madvise(Pointer(begin), size_bytes, MADV_POPULATE_WRITE) == 0) return;
    for (uint64_t page = begin; page < begin + size_bytes; page += kPageBytes)
      __atomic_fetch_or(static_cast<char*>(Pointer(page)), 0, __ATOMIC_RELAXED);
  }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  int fd_;
};

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Calls `replace(offset, size)` for one piece after the other. The first and the last page go by themselves: that is
// where other people's bytes are. Stops at the first failure and returns how far it came.
template <typename Replace>
uint64_t InSteps(uint64_t begin, uint64_t size_bytes, Replace replace) {
  // A signal's handler may write there too, and would wait for this very thread.
  const SignalsBlocked no_signals;
  WriteBarrier barrier(begin, size_bytes);
  const uint64_t step = barrier.is_effective() ? kGuardedStepBytes : kUnguardedStepBytes;
  uint64_t offset = 0;
  while (offset < size_bytes) {
    uint64_t piece = std::min(step, size_bytes - offset);
    if (offset == 0) {
      piece = kPageBytes;
    } else if (offset + piece == size_bytes && piece > kPageBytes) {
      piece -= kPageBytes;
    }
    barrier.Raise(begin + offset, piece);
    if (!replace(offset, piece)) break;
    barrier.WakeWriters(begin + offset, piece);
    offset += piece;
  }
  return offset;
}

bool MovePrivate(uint64_t begin, uint64_t spare, uint64_t offset, uint64_t size_bytes) {
  std::memcpy(Pointer(spare + offset), Pointer(begin + offset), size_bytes);
  return ::mremap(Pointer(spare + offset), size_bytes, size_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                  Pointer(begin + offset)) != MAP_FAILED;
}

void* MapSpare(uint64_t size_bytes) {
  return ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

}  // namespace

bool SwapForShared(uint64_t begin, uint64_t size_bytes, int fd) {
  void* copy = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (copy == MAP_FAILED) return false;
  const uint64_t done = InSteps(begin, size_bytes, [&](uint64_t offset, uint64_t piece) {
    std::memcpy(static_cast<char*>(copy) + offset, Pointer(begin + offset), piece);
    return ::mmap(Pointer(begin + offset), piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                  static_cast<off_t>(offset)) != MAP_FAILED;
  });
  ::munmap(copy, size_bytes);
  if (done == size_bytes) return true;
  if (done != 0) SwapForPrivate(begin, done);
  return false;
}

bool SwapForPrivate(uint64_t begin, uint64_t size_bytes) {
  void* spare = MapSpare(size_bytes);
  if (spare == MAP_FAILED) return false;
  const auto from = reinterpret_cast<uint64_t>(spare);
  const uint64_t done = InSteps(
      begin, size_bytes, [&](uint64_t offset, uint64_t piece) { return MovePrivate(begin, from, offset, piece); });
  if (done != size_bytes) ::munmap(Pointer(from + done), size_bytes - done);
  return done == size_bytes;
}

bool SwapForPrivateAlone(uint64_t begin, uint64_t size_bytes) {
  void* spare = MapSpare(size_bytes);
  if (spare == MAP_FAILED) return false;
  if (MovePrivate(begin, reinterpret_cast<uint64_t>(spare), 0, size_bytes)) return true;
  ::munmap(spare, size_bytes);
  return false;
}

}  // namespace tally::client_shim
