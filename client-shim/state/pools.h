// Which memory pool is current on which device, and what the client knows of pools without asking. The executor's
// device serves every session, so what is "current" is kept here and named with each allocation.
//
// Thread-safe.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>

namespace tally::client_shim {

class Pools {
 public:
  void Add(uint64_t pool, CUdevice device) {
    const std::lock_guard lock(mutex_);
    device_of_[pool] = device;
  }
  // The default pool becomes current again where this one was.
  void Remove(uint64_t pool) {
    const std::lock_guard lock(mutex_);
    device_of_.erase(pool);
    std::erase_if(current_, [pool](const auto& entry) { return entry.second == pool; });
  }
  // The device whose memory a created pool gives out; -1: not a pool that was created here.
  CUdevice DeviceOf(uint64_t pool) const {
    const std::lock_guard lock(mutex_);
    const auto found = device_of_.find(pool);
    return found != device_of_.end() ? found->second : -1;
  }
  // 0: the default pool.
  uint64_t Current(CUdevice device) const {
    const std::lock_guard lock(mutex_);
    const auto found = current_.find(device);
    return found != current_.end() ? found->second : 0;
  }
  void SetCurrent(CUdevice device, uint64_t pool) {
    const std::lock_guard lock(mutex_);
    if (pool == 0) {
      current_.erase(device);
    } else {
      current_[device] = pool;
    }
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, CUdevice> device_of_;
  std::map<CUdevice, uint64_t> current_;
};

}  // namespace tally::client_shim
