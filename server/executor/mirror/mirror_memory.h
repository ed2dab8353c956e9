// The memory of a mirror: home's addresses, with home's memory behind them or memory of its own, and the memory of the
// other GPUs at addresses of no meaning, as the other end of copies.
//
//   home's addresses   [ own | own |      | home's ]    a piece is mapped, or not there: a kernel's access faults
//   elsewhere          [     | GPU 2's    | ...    ]    one such range for each allocation and other GPU
//
// A piece is a whole number of the device's granules and has physical memory of its own, so that it can be unmapped and
// exported by itself. Not thread-safe. All arguments are checked against what was reserved: a wrong one is
// CUDA_ERROR_INVALID_VALUE and changes nothing.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>

#include "base/unique_fd.h"
#include "server/executor/driver/address_arena.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/mirror/mirror_command.h"

namespace tally::server {

class MirrorMemory {
 public:
  // `driver` outlives this. `ordinal` is the device's; its context is current in every call.
  MirrorMemory(const DriverTable& driver, int ordinal)
      : driver_(driver),
        ordinal_(ordinal),
        arena_(driver, AddressArena::kOfHome),
        apart_(driver, AddressArena::kApart) {}
  ~MirrorMemory();
  MirrorMemory(const MirrorMemory&) = delete;
  MirrorMemory& operator=(const MirrorMemory&) = delete;

  // The commands of that name (mirror_abi.h), checked by CheckCommand. Work that uses what Release and Unmap take away
  // has ended. CUDA_ERROR_NOT_SUPPORTED from Reserve: the addresses are taken here.
  CUresult Reserve(const shm::MirrorCommand& command);
  CUresult Release(uint32_t allocation);
  CUresult MapShared(const shm::MirrorCommand& command, int fd);
  CUresult MapOwn(const shm::MirrorCommand& command, UniqueFd* exported);
  CUresult MapOther(const shm::MirrorCommand& command, int fd);
  CUresult Unmap(const shm::MirrorCommand& command);

  // Where the box of a kFetch, kWriteBack or kFill lies at home's addresses, and in GPU `gpu`'s memory. Nothing if it
  // leaves the allocation, or none of that GPU's memory is here. (Whether all of it is mapped the driver checks.)
  std::optional<CUdeviceptr> InOwn(const shm::MirrorCommand& command) const;
  std::optional<CUdeviceptr> InOther(const shm::MirrorCommand& command) const;

 private:
  struct Piece {
    uint64_t num_bytes = 0;
    CUmemGenericAllocationHandle memory = 0;
  };
  struct Range {
    CUdeviceptr base = 0;
    std::map<uint64_t, Piece> pieces;  // by offset
  };
  struct Allocation {
    uint64_t num_bytes = 0;
    Range own;
    std::map<uint32_t, Range> others;  // by GPU
  };

  Allocation* Find(uint32_t number);
  const Allocation* FindBox(const shm::MirrorCommand& command) const;
  // Takes over `memory`, also if it fails.
  CUresult MapPiece(Range& range, uint64_t offset, uint64_t num_bytes, CUmemGenericAllocationHandle memory);
  CUresult Import(int fd, CUmemGenericAllocationHandle* memory) const;
  void Clear(Range& range, uint64_t num_bytes);

  const DriverTable& driver_;
  const int ordinal_;
  AddressArena arena_;                          // home's addresses
  AddressArena apart_;                          // for memory of others
  std::map<uint32_t, Allocation> allocations_;  // by number
};

}  // namespace tally::server
