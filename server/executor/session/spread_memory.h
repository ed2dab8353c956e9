// Device memory of a session whose graphs are spread over several GPUs (graph_spread.h): made so that other processes
// can map it, which what cuMemAlloc makes cannot be.
//
//      cuMemAlloc of the program, kLeastBytes or more  -->  addresses + physical memory, whole granules, exportable
//      everything else                                 -->  the driver's own
//
// To the program both are the same, but that the first cannot be offered to others by cuIpcGetMemHandle. All GPUs of
// the session that can access it may, as after cuCtxEnablePeerAccess.
//
// Thread-safe.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "server/executor/driver/address_arena.h"
#include "server/executor/driver/completion_source.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {

class SpreadMemory {
 public:
  // TALLY_SPREAD_LEAST_BYTES in the environment of the executor, for tests, says another number.
  static constexpr uint64_t kLeastBytes = uint64_t{1} << 20;

  struct Allocation {
    uint64_t id = 0;  // of no other, ever
    uint64_t address = 0;
    uint64_t num_bytes = 0;  // whole granules
    int device = 0;
  };

  // `ordinals`: the session's GPUs. The driver and the arena outlive this. What is not from the arena lies where the
  // driver puts it, and mirrors may not have those addresses.
  SpreadMemory(const DriverTable& driver, AddressArena& arena, std::vector<int> ordinals);
  ~SpreadMemory();
  SpreadMemory(const SpreadMemory&) = delete;
  SpreadMemory& operator=(const SpreadMemory&) = delete;

  // Whether so much is to be made here.
  bool Wants(uint64_t num_bytes) const;
  CUresult Allocate(int device, uint64_t num_bytes, CUdeviceptr* address);
  // Where it begins. Nothing uses it any more. False: it is not from here.
  bool Free(CUdeviceptr address);
  // Once `mark` has ended; looked at by the calls above.
  bool FreeBehind(CUdeviceptr address, Mark mark);
  bool Has(CUdeviceptr address) const;
  // That all of [begin, end) lies in.
  std::optional<Allocation> Around(uint64_t begin, uint64_t end) const;
  // Another descriptor each time. Not valid: it is gone, or the driver refuses.
  UniqueFd Export(uint64_t id) const;

 private:
  struct Held {
    Allocation place;
    CUmemGenericAllocationHandle memory = 0;
  };
  struct Leaving {
    Held held;
    Mark mark;
  };
  CUresult Map(Held& held);
  void Destroy(const Held& held);
  // Takes it out; nothing: it is not from here.
  std::optional<Held> Take(CUdeviceptr address);
  void DestroyWhatHasEnded();

  const DriverTable& driver_;
  AddressArena& arena_;
  const std::vector<int> ordinals_;
  const uint64_t least_bytes_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Held> held_;  // by address
  std::list<Leaving> leaving_;
  uint64_t last_id_ = 0;
};

}  // namespace tally::server
