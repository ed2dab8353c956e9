// CUDA manual: Stream Ordered Memory Allocator, pools, and the devices' graph memory. Attributes are of different
// widths in the program's memory; eight bytes travel. Locations name devices as the program counts them, and travel as
// the executor does.
#include <cstring>
#include <vector>

#include "client-shim/state/process.h"
#include "client-shim/state/refusals.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

size_t WidthOf(CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return sizeof(int);
    default:
      return sizeof(uint64_t);
  }
}

// Pools of device memory are offered: the other places and kinds say so in device attributes 142 and 144.
CUresult CheckPlace(const CUmemLocation* location, CUmemAllocationType type) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool is_managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED && !is_managed) return CUDA_ERROR_INVALID_VALUE;
  switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (is_managed) return RefuseUse("cuMemPoolCreate: memory pools of managed memory");
      return process->IsDevice(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return RefuseUse("cuMemPoolCreate: memory pools of host memory");
    case CU_MEM_LOCATION_TYPE_NONE:
      if (is_managed) return RefuseUse("cuMemPoolCreate: memory pools of managed memory");
      return CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;  // as driver 580 answers
  }
}

uint64_t Word(CUmemoryPool pool) { return reinterpret_cast<uint64_t>(pool); }

// The device of a created pool or of a default one; -1 for anything else.
CUdevice DeviceOf(const Process& process, CUmemoryPool pool) {
  if (const CUdevice device = process.pools.DeviceOf(Word(pool)); device >= 0) return device;
  for (CUdevice device = 0; device < process.num_devices(); ++device) {
    CUmemoryPool known = nullptr;
    if (wire::cuDeviceGetDefaultMemPool(&known, device) == CUDA_SUCCESS && known == pool) return device;
  }
  return -1;
}

CUresult SetCurrent(CUdevice device, CUmemoryPool pool) {
  Process* process = CurrentProcess();
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (DeviceOf(*process, pool) != device) return CUDA_ERROR_INVALID_VALUE;
  const bool is_created = process->pools.DeviceOf(Word(pool)) >= 0;
  process->pools.SetCurrent(device, is_created ? Word(pool) : 0);
  return CUDA_SUCCESS;
}

CUresult GetCurrent(CUdevice device, CUmemoryPool* pool) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t current = CurrentProcess()->pools.Current(device);
  if (current == 0) return wire::cuDeviceGetDefaultMemPool(pool, device);
  *pool = reinterpret_cast<CUmemoryPool>(current);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pool == nullptr || poolProps == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckPlace(&poolProps->location, poolProps->allocType); result != CUDA_SUCCESS)
    return result;
  CUmemPoolProps properties = *poolProps;
  properties.location.id = process->server_ordinal(poolProps->location.id);
  const CUresult result = wire::cuMemPoolCreate(pool, &properties);
  if (result == CUDA_SUCCESS) process->pools.Add(Word(*pool), poolProps->location.id);
  return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (process->pools.DeviceOf(Word(pool)) < 0) return CUDA_ERROR_INVALID_VALUE;  // a default pool, or none at all
  process->pools.Remove(Word(pool));
  return wire::cuMemPoolDestroy(pool);
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (map == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUmemAccessDesc> translated(map, map + count);
  for (CUmemAccessDesc& access : translated) {
    if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (!process->IsDevice(access.location.id)) return CUDA_ERROR_INVALID_DEVICE;
    access.location.id = process->server_ordinal(access.location.id);
  }
  return wire::cuMemPoolSetAccess(pool, translated.data(), count);
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool, CUmemLocation* location) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  if (!process->IsDevice(location->id)) return CUDA_ERROR_INVALID_DEVICE;
  CUmemLocation translated = *location;
  translated.id = process->server_ordinal(location->id);
  return wire::cuMemPoolGetAccess(flags, memPool, &translated);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t word = 0;
  const CUresult result = wire::cuMemPoolGetAttribute(pool, attr, &word);
  if (result == CUDA_SUCCESS) std::memcpy(value, &word, WidthOf(attr));
  return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t word = 0;
  std::memcpy(&word, value, WidthOf(attr));
  return wire::cuMemPoolSetAttribute(pool, attr, &word);
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t word = 0;
  const CUresult result = wire::cuDeviceGetGraphMemAttribute(device, attr, &word);
  if (result == CUDA_SUCCESS) std::memcpy(value, &word, sizeof(word));
  return result;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t word = 0;
  std::memcpy(&word, value, sizeof(word));
  return wire::cuDeviceSetGraphMemAttribute(device, attr, &word);
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return process->IsDevice(dev) ? GetCurrent(dev, pool) : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return process->IsDevice(dev) ? SetCurrent(dev, pool) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location, CUmemAllocationType type) {
  if (const CUresult result = CheckPlace(location, type); result != CUDA_SUCCESS) return result;
  return pool_out != nullptr ? wire::cuDeviceGetDefaultMemPool(pool_out, location->id) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  if (const CUresult result = CheckPlace(location, type); result != CUDA_SUCCESS) return result;
  return GetCurrent(location->id, pool);
}
CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  if (const CUresult result = CheckPlace(location, type); result != CUDA_SUCCESS) return result;
  return SetCurrent(location->id, pool);
}

}  // namespace tally::client_shim::entry
