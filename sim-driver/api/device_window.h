// The addresses that device memory of this process has, and the file whose pages lie behind them.
//
// The file is a memfd that nobody can shrink, so that other processes may map pieces of it (ipc_memory.h) and a device
// address stays a real address in each. It is sparse: the system gives pages as they are touched. Behind the window's
// bytes it has room that others read: `kSharedTailBytes`, mapped at tail().
//
// Not thread-safe by itself: MemoryMap's lock guards all but the getters.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/unique_fd.h"

namespace tally::sim_driver {

class DeviceWindow {
 public:
  static constexpr uint64_t kPreferredStart = 0x7c00'0000'0000;
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kSharedTailBytes = 256 << 10;

  // Empty (start() == end()) where the system gives none.
  DeviceWindow();

  uint64_t start() const { return start_; }
  uint64_t end() const { return end_; }
  int fd() const { return fd_.get(); }
  std::byte* tail() const { return tail_; }
  bool Contains(uint64_t address) const { return address >= start_ && address < end_; }

  // Gives the pages of [begin, end) back to the system, everywhere: whoever reads them again reads zeros.
  void ReturnPages(uint64_t begin, uint64_t end) const;
  // Puts pages of another file in place of the window's own; whole pages. False: the system refused, nothing changed.
  static bool Cover(uint64_t begin, uint64_t end, int fd, uint64_t fd_offset);
  // Undoes Cover(): the window's own pages again.
  bool Uncover(uint64_t begin, uint64_t end) const;

 private:
  bool Open(uint64_t num_bytes);

  uint64_t start_ = 0;
  uint64_t end_ = 0;
  UniqueFd fd_;
  std::byte* tail_ = nullptr;
};

}  // namespace tally::sim_driver
