// Which addresses are whose: every allocation, module variable and shared host buffer of this session. Answers pointer
// queries without asking the executor, and tells a copy's pageable side from its device side.
//
// Thread-safe; readers share.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>
#include <vector>

namespace tally::client_shim {

enum class MemoryKind : uint8_t {
  kDevice,      // cuMemAlloc and its kin
  kGlobal,      // a variable of a module
  kPinned,      // cuMemHostAlloc: shared with the executor, host and device address are equal
  kManaged,     // cuMemAllocManaged: the same thing under another name
  kRegistered,  // cuMemHostRegister: the program's own, whose device address may be another
  kOpened,      // another program's, by cuIpcOpenMemHandle
  kMapped,      // cuMemMap: physical memory at reserved addresses; belongs to no context
};

struct Allocation {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  CUdevice device = 0;
  uint32_t context = 0;         // index
  uint32_t host_flags = 0;      // of cuMemHostAlloc
  uint64_t buffer_id = 0;       // unique while the process lives
  uint64_t pool = 0;            // of is_from_pool, 0: the default one
  uint64_t mapped_bytes = 0;    // of host memory: what munmap takes
  uint64_t owner = 0;           // module or library of a kGlobal
  uint64_t reserved_bytes = 0;  // address space held for it (address_reservations.h), 0 if none
  uint32_t handle_types = 0;    // CUmemAllocationHandleType it may leave the program as
  bool is_from_pool = false;    // cuMemAllocAsync and its kin
  bool sync_memory_operations = false;
  bool is_graph_memory = false;      // of a memory node: its addresses outlive a free
  bool is_managed_variable = false;  // a kGlobal that the host uses too (managed_variables.h)
  // What host and device know it by. Only registered memory may have two addresses; then it is in the map twice.
  uint64_t host_address = 0;     // 0 before Insert: the same as `address`
  uint64_t device_address = 0;   // likewise
  uint64_t registered_page = 0;  // of registered memory: its first page in this process

  bool is_host() const {
    return kind == MemoryKind::kPinned || kind == MemoryKind::kManaged || kind == MemoryKind::kRegistered;
  }
  bool is_managed() const { return kind == MemoryKind::kManaged || is_managed_variable; }
  // The entry under the device's address of memory that has two.
  bool is_device_view() const { return host_address != address; }
  uint64_t HostAddressOf(uint64_t inside) const { return host_address + (inside - address); }
  uint64_t DeviceAddressOf(uint64_t inside) const { return device_address + (inside - address); }
  // What cuIpcGetMemHandle takes: neither pools nor mappings have handles of that kind.
  bool is_ipc_capable() const { return kind == MemoryKind::kDevice && !is_from_pool; }
  // cuMemPoolImportPointer: another program's, but freed like one's own.
  bool is_opened_from_pool() const { return kind == MemoryKind::kOpened && pool != 0; }
  bool Contains(uint64_t begin, uint64_t bytes) const {
    return begin >= address && bytes <= size_bytes && begin - address <= size_bytes - bytes;
  }
};

class AddressMap {
 public:
  // Fills in buffer_id and what is 0 of the two addresses. Replaces what is at the same address: the executor knows
  // better what is where.
  void Insert(Allocation allocation);
  // The allocation that contains `address`.
  std::optional<Allocation> Find(uint64_t address) const;
  // The first allocation that shares a byte with [address, address + size_bytes).
  std::optional<Allocation> FindOverlap(uint64_t address, uint64_t size_bytes) const;
  // Whether all of [address, address + size_bytes) lies inside one allocation, or inside adjoining mappings.
  bool Covers(uint64_t address, uint64_t size_bytes) const;
  // The allocation that starts at exactly `address`, removed.
  std::optional<Allocation> Remove(uint64_t address);
  // Everything of one context, or of one owner, removed.
  std::vector<Allocation> RemoveContext(uint32_t context);
  std::vector<Allocation> RemoveOwner(uint64_t owner);
  void SetSyncMemoryOperations(uint64_t address, bool value);

 private:
  template <typename Predicate>
  std::vector<Allocation> RemoveIf(Predicate is_doomed);
  const Allocation* FindLocked(uint64_t address) const;

  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Allocation> by_address_;
  uint64_t next_buffer_id_ = 1;
};

}  // namespace tally::client_shim
