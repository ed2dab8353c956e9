#include "sim-driver/api/pool.h"

#include <algorithm>
#include <cstring>

#include "sim-driver/api/capture.h"
#include "sim-driver/api/device.h"
#include "sim-driver/api/error.h"
#include "sim-driver/api/memory.h"

namespace tally::sim_driver {
namespace {

template <typename Value>
void Put(void* out, Value value) {
  std::memcpy(out, &value, sizeof value);
}
template <typename Value>
Value Take(const void* in) {
  Value value;
  std::memcpy(&value, in, sizeof value);
  return value;
}

MemoryPoolPtr NewPool(int device, bool is_default, uint64_t max_bytes) {
  auto pool = std::make_shared<MemoryPool>();
  pool->device = device;
  pool->is_default = is_default;
  pool->max_bytes = max_bytes;
  const uint64_t value = NextHandleValue();
  pool->handle = reinterpret_cast<CUmemoryPool>(value);
  MemoryPools().InsertAt(value, pool);
  return pool;
}

// The address an allocation node of a capture or graph gets; its memory lives as long as the returned owner.
AllocOperation GraphAllocation(const ContextPtr& context, uint64_t num_bytes) {
  AllocOperation allocation;
  allocation.given.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.given.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {context->device().ordinal()}};
  allocation.given.bytesize = num_bytes;
  allocation.memory = AcquireGraphMemory(*context, num_bytes, allocation.given.dptr);
  return allocation;
}

}  // namespace

HandleTable<CUmemoryPool, MemoryPool>& MemoryPools() {
  static auto& table = *new HandleTable<CUmemoryPool, MemoryPool>("pools");
  return table;
}

MemoryPoolPtr FindPool(CUmemoryPool handle) {
  MemoryPoolPtr pool = MemoryPools().Find(handle);
  Require(pool != nullptr, CUDA_ERROR_INVALID_VALUE);
  return pool;
}

void MemoryPool::GetAttribute(CUmemPool_attribute attribute, void* value) {
  const std::lock_guard lock(mutex_);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return Put(value, reuse_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES]);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return Put(value, release_threshold_);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return Put(value, used_);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return Put(value, used_high_);
    default:
      Fail(CUDA_ERROR_INVALID_VALUE);
  }
}

void MemoryPool::SetAttribute(CUmemPool_attribute attribute, const void* value) {
  const std::lock_guard lock(mutex_);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      reuse_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = sim_driver::Take<int>(value);
      return;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      release_threshold_ = sim_driver::Take<uint64_t>(value);
      return;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      // Only resetting is allowed.
      Require(sim_driver::Take<uint64_t>(value) == 0, CUDA_ERROR_INVALID_VALUE);
      used_high_ = used_;
      return;
    default:
      Fail(CUDA_ERROR_INVALID_VALUE);
  }
}

bool MemoryPool::Take(uint64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  if (max_bytes != 0 && (num_bytes > max_bytes || used_ > max_bytes - num_bytes)) return false;
  used_ += num_bytes;
  used_high_ = std::max(used_high_, used_);
  return true;
}

void MemoryPool::Return(uint64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= std::min(used_, num_bytes);
}

MemoryPoolPtr DefaultPool(Device& device) {
  const std::lock_guard lock(device.pool_mutex);
  if (!device.default_pool) device.default_pool = NewPool(device.ordinal(), true, 0);
  return device.default_pool;
}

MemoryPoolPtr CurrentPool(Device& device) {
  MemoryPoolPtr otherwise = DefaultPool(device);
  const std::lock_guard lock(device.pool_mutex);
  return device.current_pool ? device.current_pool : otherwise;
}

MemoryPoolPtr CreatePool(const CUmemPoolProps& properties) {
  Require(properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
  // Host pools and exportable pools are attributes that the device says it lacks.
  Require(properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties.handleTypes == CU_MEM_HANDLE_TYPE_NONE,
          CUDA_ERROR_NOT_SUPPORTED);
  DeviceAt(properties.location.id);
  return NewPool(properties.location.id, false, properties.maxSize);
}

void DestroyPool(CUmemoryPool handle) {
  const MemoryPoolPtr pool = FindPool(handle);
  Require(!pool->is_default, CUDA_ERROR_INVALID_VALUE);
  MemoryPools().Remove(handle);
  Device& device = DeviceAt(pool->device);
  const std::lock_guard lock(device.pool_mutex);
  if (device.current_pool == pool) device.current_pool = nullptr;
}

void NotePoolRelease(uint64_t handle, uint64_t num_bytes) {
  if (const MemoryPoolPtr pool = MemoryPools().Find(reinterpret_cast<CUmemoryPool>(handle))) pool->Return(num_bytes);
}

uint64_t AllocateFromPool(const StreamUse& use, const MemoryPoolPtr& pool, uint64_t num_bytes) {
  Require(num_bytes != 0, CUDA_ERROR_INVALID_VALUE);
  if (IsCapturing(use.stream)) {
    AllocOperation allocation = GraphAllocation(use.context, num_bytes);
    const CUdeviceptr address = allocation.given.dptr;
    Issue(use, std::move(allocation));
    return address;
  }
  const uint64_t accounted = AccountedBytes(num_bytes);
  MemoryRegion shape;
  shape.num_bytes = num_bytes;
  shape.pool = reinterpret_cast<uint64_t>(pool->handle);
  // Frees that their streams have not reached yet may make room: once, wait for them.
  for (const bool is_last : {false, true}) {
    if (pool->Take(accounted)) {
      try {
        return AcquireMemory(*use.context, shape, 0);
      } catch (const DriverError& error) {
        pool->Return(accounted);
        if (is_last || error.code != CUDA_ERROR_OUT_OF_MEMORY) throw;
      }
    } else if (is_last) {
      Fail(CUDA_ERROR_OUT_OF_MEMORY);
    }
    use.context->Synchronize();
    RequireSuccess(use.context->error());
  }
  Fail(CUDA_ERROR_OUT_OF_MEMORY);
}

void FreeOnStream(const StreamUse& use, uint64_t address) {
  const auto region = MemoryMap::Get().Find(address);
  Require(region && region->base == address && !region->is_module_owned &&
              (region->kind == MemoryKind::kDevice || region->kind == MemoryKind::kManaged),
          CUDA_ERROR_INVALID_VALUE);
  Require(!IsCapturing(use.stream) || region->is_graph_owned, CUDA_ERROR_INVALID_VALUE);
  Issue(use, FreeOperation{address});
}

}  // namespace tally::sim_driver
