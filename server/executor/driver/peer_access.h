// Which devices' kernels may use which other devices' memory: switched on in the driver when the first session asks,
// never off, since every session of the executor shares the contexts. What a session itself switched on and off is the
// client's own book. Thread-safe.
#pragma once

#include <cuda.h>

#include <mutex>
#include <set>
#include <utility>

#include "server/executor/driver/devices.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {

class PeerAccess {
 public:
  PeerAccess(const DriverTable& driver, Devices& devices) : driver_(driver), devices_(devices) {}

  // Makes the context of `from` current on the calling thread. CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: they cannot.
  CUresult Enable(int from, int to);

 private:
  const DriverTable& driver_;
  Devices& devices_;
  std::mutex mutex_;
  std::set<std::pair<int, int>> enabled_;
};

}  // namespace tally::server
