// Memory pools of a session. What a program sees as a device's default pool is a pool of its own session: otherwise one
// tenant's thresholds and trims would be everybody's, and a client's end would leave its memory in the shared pool.
//
// Of a session with a memory limit a pool counts with all that it has reserved of the device, in use or not.
//
// Guarded by the session's sequencer, but for is_due(). What it is made of must outlive it.
#pragma once

#include <cuda.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "server/executor/driver/devices.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/session/handle_tables.h"
#include "server/executor/session/memory_quota.h"
#include "server/executor/session/shared_objects.h"

namespace tally::server {

class Pools {
 public:
  Pools(const DriverTable& driver, const Devices& devices, HandleTables& handles, SharedObjects& shared,
        std::shared_ptr<MemoryQuota> quota)
      : driver_(driver), devices_(devices), handles_(handles), shared_(shared), quota_(std::move(quota)) {}

  std::map<CUmemoryPool, int> exportable;  // their devices
  std::set<CUmemoryPool> opened;           // stand for pools of other sessions

  // Made on first use. (Which pool is current is the client's to remember: it names it when it allocates.)
  CUresult Default(int device, CUmemoryPool* pool);
  bool IsDefault(CUmemoryPool pool) const;
  // A pool of the device's memory, the caller's.
  CUresult NewOnDevice(int device, CUmemoryPool* pool) const;
  // Whether so much more may be allocated from it, as far as the limits go / whether what it has reserved for that
  // fits.
  bool MayAllocate(CUmemoryPool pool, int device, uint64_t size_bytes);
  bool HasRoom(CUmemoryPool pool);
  // What pools have reserved may have become less: to be looked at when there is time for it.
  void NoteFreed() { is_due_.store(quota_->is_limited(), std::memory_order_relaxed); }
  bool is_due() const { return is_due_.load(std::memory_order_relaxed); }
  // Looks at it.
  void Settle();
  // Has the driver take back what pools have reserved and do not use.
  void Trim();
  // It is about to be destroyed.
  void Forget(CUmemoryPool pool);
  // With the session: what was allocated from them is gone already.
  void DestroyAll();

 private:
  const DriverTable& driver_;
  const Devices& devices_;
  HandleTables& handles_;
  // What the driver says of a pool; false: it says nothing.
  struct Usage {
    uint64_t reserved_bytes = 0;
    uint64_t used_bytes = 0;
  };
  bool Ask(CUmemoryPool pool, Usage* usage) const;

  SharedObjects& shared_;
  const std::shared_ptr<MemoryQuota> quota_;
  std::atomic<bool> is_due_{false};
  std::map<CUmemoryPool, MemoryCharge> charges_;  // none without a limit
  std::vector<std::map<CUmemoryPool, MemoryCharge>::node_type>
      orphans_;                          // of what was in use when its pool was destroyed
  std::map<int, CUmemoryPool> default_;  // by device: what this session gets for "the default pool"
};

}  // namespace tally::server
