// Stream-ordered memory pools (cuMemAllocAsync): accounting and attributes. The memory itself comes from memory.h.
//
// An allocation is usable as soon as the call returns, which is earlier than the promise; a free happens when its
// stream gets there. Nothing is cached: released memory goes back to the device whatever the release threshold says.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "sim-driver/api/handle_table.h"
#include "sim-driver/api/stream.h"

namespace tally::sim_driver {

class Device;

class MemoryPool {
 public:
  CUmemoryPool handle = nullptr;
  int device = 0;
  bool is_default = false;
  uint64_t max_bytes = 0;  // 0: no bound of its own

  // One attribute of cuMemPoolGet/SetAttribute; `value` is an int or a cuuint64_t as the attribute says.
  void GetAttribute(CUmemPool_attribute attribute, void* value);
  void SetAttribute(CUmemPool_attribute attribute, const void* value);

  bool Take(uint64_t num_bytes);
  void Return(uint64_t num_bytes);

 private:
  std::mutex mutex_;
  int reuse_[3] = {1, 1, 1};
  uint64_t release_threshold_ = 0;
  uint64_t used_ = 0;
  uint64_t used_high_ = 0;
};
using MemoryPoolPtr = std::shared_ptr<MemoryPool>;

HandleTable<CUmemoryPool, MemoryPool>& MemoryPools();
MemoryPoolPtr FindPool(CUmemoryPool handle);  // fails with INVALID_VALUE
MemoryPoolPtr DefaultPool(Device& device);
MemoryPoolPtr CurrentPool(Device& device);
MemoryPoolPtr CreatePool(const CUmemPoolProps& properties);
void DestroyPool(CUmemoryPool handle);
// An allocation of the pool with this handle was given back; the pool may be gone.
void NotePoolRelease(uint64_t handle, uint64_t num_bytes);

uint64_t AllocateFromPool(const StreamUse& use, const MemoryPoolPtr& pool, uint64_t num_bytes);
void FreeOnStream(const StreamUse& use, uint64_t address);

}  // namespace tally::sim_driver
