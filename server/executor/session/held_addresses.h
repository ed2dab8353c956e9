// Addresses of the executor that the driver must not give to device memory.
//
// A device pointer is the same number in every client, so device memory at an address where a client has its libraries
// or heaps is of no use to that client. Left alone, the driver takes addresses from the top of the address space
// downwards, where clients have theirs: executor and client differ by a random offset of at most 1 TiB. So the executor
// holds (PROT_NONE) all that is free there before the driver is loaded, and device memory comes to lie below.
// What must be at a client's address (pinned memory) is then mapped over what is held. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/mapped_region.h"
#include "base/status.h"

namespace tally::server {

class HeldAddresses {
 public:
  // Everything from here up is held; x86-64 Linux begins a process's mappings at most 1.1 TiB below 2^47.
  static constexpr uint64_t kBegin = 0x7e9000000000;

  HeldAddresses() = default;
  ~HeldAddresses();
  HeldAddresses(const HeldAddresses&) = delete;
  HeldAddresses& operator=(const HeldAddresses&) = delete;

  // Once, as early as possible. What cannot be held stays free for all: nothing depends on it but luck.
  void Hold();
  uint64_t size_bytes() const;

  // Maps `size_bytes` of `fd`, from `offset_bytes` on, shared and writable at exactly `address`, a multiple of the page
  // size: over held addresses or where nothing is. kAlreadyExists when anything else is there.
  Result<MappedRegion> Map(int fd, uint64_t size_bytes, uint64_t address, uint64_t offset_bytes = 0);
  // Ends a mapping made by Map; held addresses are held again with no moment between.
  void Unmap(MappedRegion region);

 private:
  struct Range {
    uint64_t begin, end;
  };
  bool IsHeldLocked(uint64_t begin, uint64_t end) const;

  mutable std::mutex mutex_;
  std::vector<Range> held_;              // does not change after Hold
  std::map<uint64_t, uint64_t> mapped_;  // begin -> end of what lies over held addresses now
};

}  // namespace tally::server
