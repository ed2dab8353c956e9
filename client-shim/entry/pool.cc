// CUDA manual: Stream Ordered Memory Allocator, pools, and the devices' graph memory. Attributes are of different
// widths in the program's memory; eight bytes travel.
#include <cstring>

#include "client-shim/entry/guard.h"
#include "client-shim/state/process.h"
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

}  // namespace

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

// The executor's device serves every session: a session may not change its current pool for the others. It can
// allocate from a pool of its own by name (cuMemAllocFromPoolAsync).
CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) { return wire::cuDeviceGetDefaultMemPool(pool, dev); }
CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  CUmemoryPool current = nullptr;
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = wire::cuDeviceGetDefaultMemPool(&current, dev); result != CUDA_SUCCESS) return result;
  return pool == current ? CUDA_SUCCESS : RefuseUse("cuDeviceSetMemPool: another pool than the default one");
}

}  // namespace tally::client_shim::entry
