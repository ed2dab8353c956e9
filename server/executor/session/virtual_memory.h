// Virtual memory management of one session: the addresses it reserved, the physical memory it holds, and which lies
// where. The mappings themselves are ranges of the session's MemoryMap, so that copies and fills find them.
//
// The executor's sessions share one address space: a reservation is the driver's own, at the same addresses in the
// client, and only its owner may map into it. Physical memory lives until its last holder, in whatever session, has let
// go of it: a holder is a handle or a mapping. Guarded by the session's sequencer, except PhysicalMemory, whose last
// reference may be dropped by anybody.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "proto/shm/records_memory_abi.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/session/driver_handle.h"
#include "server/executor/session/memory_map.h"

namespace tally::server {

// What one cuMemCreate made, or was imported from another executor. Immutable; destroying it gives the memory back.
struct PhysicalMemory {
  PhysicalMemory(const DriverTable& table, CUmemGenericAllocationHandle made) : driver(table), real(made) {}
  ~PhysicalMemory() { driver.cuMemRelease(real); }
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;

  const DriverTable& driver;
  const CUmemGenericAllocationHandle real;
  uint64_t size_bytes = 0;
  shm::PhysicalProperties properties{};  // as the client asked: what is exported is ours, not the driver's
  SharedCharge charge;                   // its maker's, or of who imported it
  SharedDriverHandle handle;             // once it was offered; guarded by SharedObjects
};

class VirtualMemory {
 public:
  static constexpr size_t kMaxReservations = 1 << 16;
  static constexpr uint64_t kMaxReservedBytes = uint64_t{64} << 40;

  explicit VirtualMemory(MemoryMap& memory) : memory_(memory) {}

  // Reservations.
  bool MayReserve(uint64_t size_bytes) const;
  void AddReservation(uint64_t address, uint64_t size_bytes);
  // Exactly as it was made, and nothing is mapped in it.
  bool IsFreeReservation(uint64_t address, uint64_t size_bytes) const;
  bool IsReserved(uint64_t address, uint64_t size_bytes) const;
  void RemoveReservation(uint64_t address);

  // Physical memory that this session holds. Adding it again counts another reference of its one handle.
  struct Held {
    std::shared_ptr<PhysicalMemory> memory;
    uint64_t handle = 0;  // 0: none at present
    uint32_t num_references = 0;
    uint32_t num_mappings = 0;
  };
  Held& Hold(std::shared_ptr<PhysicalMemory> memory);
  Held* Find(const PhysicalMemory* memory);
  // Forgets it if neither handle nor mapping is left. The caller may keep the memory longer.
  void Settle(const PhysicalMemory* memory);

  // Mappings, by their first address. The range in the MemoryMap is made and taken with it; false: overlaps another.
  bool AddMapping(uint64_t address, uint64_t size_bytes, Held& held);
  std::shared_ptr<PhysicalMemory> RemoveMapping(uint64_t address);
  std::shared_ptr<PhysicalMemory> MappedAt(uint64_t address) const;

  // The end of the session: everything unmapped, let go and freed. Nothing on the device uses it any more.
  void DestroyAll(const DriverTable& driver);
  bool empty() const { return reservations_.empty() && held_.empty(); }

 private:
  MemoryMap& memory_;
  std::map<uint64_t, uint64_t> reservations_;  // address -> bytes
  uint64_t reserved_bytes_ = 0;
  std::map<const PhysicalMemory*, Held> held_;
  std::map<uint64_t, std::shared_ptr<PhysicalMemory>> mapped_;
};

}  // namespace tally::server
