// Memory pools of a session. What a program sees as a device's default pool is a pool of its own session: otherwise one
// tenant's thresholds and trims would be everybody's, and a client's end would leave its memory in the shared pool.
//
// Guarded by the session's sequencer. What it is made of must outlive it.
#pragma once

#include <cuda.h>

#include <map>
#include <set>

#include "server/executor/driver/devices.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/session/handle_tables.h"
#include "server/executor/session/shared_objects.h"

namespace tally::server {

class Pools {
 public:
  Pools(const DriverTable& driver, const Devices& devices, HandleTables& handles, SharedObjects& shared)
      : driver_(driver), devices_(devices), handles_(handles), shared_(shared) {}

  std::map<CUmemoryPool, int> exportable;  // their devices
  std::set<CUmemoryPool> opened;           // stand for pools of other sessions

  // Made on first use. (Which pool is current is the client's to remember: it names it when it allocates.)
  CUresult Default(int device, CUmemoryPool* pool);
  bool IsDefault(CUmemoryPool pool) const;
  // A pool of the device's memory, the caller's.
  CUresult NewOnDevice(int device, CUmemoryPool* pool) const;
  // It is about to be destroyed.
  void Forget(CUmemoryPool pool);
  // With the session: what was allocated from them is gone already.
  void DestroyAll();

 private:
  const DriverTable& driver_;
  const Devices& devices_;
  HandleTables& handles_;
  SharedObjects& shared_;
  std::map<int, CUmemoryPool> default_;  // by device: what this session gets for "the default pool"
};

}  // namespace tally::server
