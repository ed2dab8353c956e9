// Pinned host memory that client and executor share at the same address.
//
// The executor picks addresses in one window that is unique in the process (two sessions never get the same), maps a
// sealed memfd there and registers it with the driver; the client maps the same descriptor at the same address, so that
// host pointer, device pointer and the other side's pointer are one number. Memory that the client had before
// (cuMemHostRegister) is mapped here too, at the client's address if that is free. Thread-safe.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/mapped_region.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/session/held_account.h"
#include "server/executor/session/held_addresses.h"

namespace tally::server {

// Addresses of [kBegin, kEnd) in use, of all sessions of this executor.
class HostWindow {
 public:
  static constexpr uint64_t kBegin = 0x7e9000000000;
  static constexpr uint64_t kEnd = 0x7ed000000000;
  static constexpr uint64_t kAlignment = uint64_t{2} << 20;

  // 0: no gap is large enough. Goes round the window, so that an address is not soon used again: a client that still
  // maps an old one is not hit.
  uint64_t Reserve(uint64_t size_bytes);
  void Release(uint64_t address);

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> used_;  // address -> size
  uint64_t next_ = kBegin;
};

class HostMemory {
 public:
  HostMemory(const DriverTable& driver, HostWindow& window, HeldAddresses& addresses, HeldAccount& account)
      : driver_(driver), window_(window), addresses_(addresses), account_(account) {}
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  struct Allocation {
    uint64_t address = 0;
    uint64_t size_bytes = 0;  // mapped: the wish rounded up to pages
    UniqueFd fd;              // for the client
  };
  // The device's real context must be current. A failed driver call shows as kUnknown with the CUresult in *result.
  Result<Allocation> Allocate(uint64_t size_bytes, CUresult* result);
  // The client's own memory: `size_bytes` of `fd` from `offset_bytes` on (whole pages), which it has mapped at `wish`.
  // The descriptor is checked: kInvalidArgument for what cannot be shared safely. Returns where it is mapped here, at
  // `wish` unless something else is there or it is no place for a client to choose. Free ends it.
  Result<uint64_t> Register(int fd, uint64_t offset_bytes, uint64_t size_bytes, uint64_t wish, CUresult* result);
  // Unregisters and unmaps. False: not one of ours. The device must have finished with it.
  bool Free(uint64_t address);
  // The client cannot map it there. Keeps it, and its addresses, until the end: only then is it certain that nothing on
  // the device uses it, and the next attempt gets other addresses.
  bool Reject(uint64_t address);
  void FreeAll();
  // The client has truncated a file that it had registered, and the executor has touched what was gone. Cheap while
  // nobody has.
  bool WasTruncated();

 private:
  // Somewhere in the window; *address says where.
  Result<MappedRegion> MapInWindow(int fd, uint64_t offset_bytes, uint64_t size_bytes, uint64_t* address);
  void Dispose(uint64_t address, MappedRegion region);
  // The part of Dispose that the driver has no part in; the bytes are the session's again.
  void Unplace(uint64_t address, MappedRegion region);

  const DriverTable& driver_;
  HostWindow& window_;
  HeldAddresses& addresses_;
  HeldAccount& account_;  // thread-safe
  std::mutex mutex_;
  std::map<uint64_t, MappedRegion> regions_;
  std::map<uint64_t, MappedRegion> rejected_;
  std::atomic<uint64_t> num_truncations_seen_{0};  // of all sessions
};

}  // namespace tally::server
