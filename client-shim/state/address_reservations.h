// Holds, without access, the addresses that the executor's device memory has, so that nothing else of this process is
// ever mapped there: a device pointer must be distinguishable from every host pointer.
//
// Allocations share 2 MiB granules (drivers carve small ones out of such blocks); a granule is held while any is left.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace tally::client_shim {

class AddressReservations {
 public:
  static constexpr uint64_t kGranuleBytes = uint64_t{2} << 20;

  // False, with nothing held, when something of this process is already there.
  bool Hold(uint64_t address, uint64_t size_bytes);
  // The same for a range that shares no granule with any other, however large: a reservation of the program's own.
  bool HoldWhole(uint64_t address, uint64_t size_bytes);
  void ReleaseWhole(uint64_t address, uint64_t size_bytes);
  // For what Hold accepted, with the same arguments.
  void Release(uint64_t address, uint64_t size_bytes);
  // The same, but a few granules stay held for a while: memory that comes and goes costs no system calls then.
  void ReleaseSoon(uint64_t address, uint64_t size_bytes);

 private:
  void ReleaseLocked(uint64_t first, uint64_t last);
  void ReleaseIdleLocked();

  std::mutex mutex_;
  std::unordered_map<uint64_t, uint32_t> holders_;  // by granule number; 0: idle
  std::vector<uint64_t> idle_;                      // those that became idle, some held again since
};

}  // namespace tally::client_shim
