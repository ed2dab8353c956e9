// Where reserved addresses are asked for: a window far below the places where the kernel maps programs, libraries and
// stacks, so that what is free in the executor is, nearly always, free in the client that has to hold it as well.
// Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>

namespace tally::server {

class ReservationWishes {
 public:
  static constexpr uint64_t kBegin = 0x7000'0000'0000;
  static constexpr uint64_t kEnd = 0x7d00'0000'0000;

  // 0: no wish. Goes round the window; whether the addresses are free is the driver's to say.
  uint64_t Take(uint64_t size_bytes, uint64_t alignment_bytes) {
    constexpr uint64_t kStep = uint64_t{2} << 20;
    if (size_bytes == 0 || size_bytes > kEnd - kBegin - kStep || alignment_bytes > kEnd - kBegin) return 0;
    const uint64_t alignment = alignment_bytes > kStep ? alignment_bytes : kStep;
    const std::lock_guard lock(mutex_);
    uint64_t address = (next_ + alignment - 1) / alignment * alignment;
    if (address > kEnd - size_bytes) address = (kBegin + alignment - 1) / alignment * alignment;
    if (address > kEnd - size_bytes) return 0;
    next_ = (address + size_bytes + kStep - 1) / kStep * kStep;
    return address;
  }

 private:
  std::mutex mutex_;
  uint64_t next_ = kBegin;
};

}  // namespace tally::server
