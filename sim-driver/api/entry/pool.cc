// Stream-ordered allocation and memory pools.
#include "sim-driver/api/pool.h"

#include <cstring>

#include "sim-driver/api/entry/entry.h"
#include "sim-driver/api/memory.h"

using namespace tally::sim_driver;

TALLY_EXPORT CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    RequireOut(dptr);
    *dptr = AllocateFromPool(use, CurrentPool(use.context->device()), bytesize);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                                      CUstream hStream) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    RequireOut(dptr);
    *dptr = AllocateFromPool(use, FindPool(pool), bytesize);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    if (dptr == 0) return CUDA_SUCCESS;
    FreeOnStream(use, dptr);
    return CUDA_SUCCESS;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(pool);
    RequireOut(poolProps);
    *pool = CreatePool(*poolProps)->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool) {
  TALLY_ENTRY({
    RequireInitialized();
    DestroyPool(pool);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  TALLY_ENTRY({
    RequireInitialized();
    FindPool(pool);  // nothing is cached, so there is nothing to trim
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(value);
    FindPool(pool)->GetAttribute(attr, value);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(value);
    FindPool(pool)->SetAttribute(attr, value);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  TALLY_ENTRY({
    RequireInitialized();
    const MemoryPoolPtr found = FindPool(pool);
    Require(map != nullptr || count == 0, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; ++i) {
      Require(map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
      DeviceAt(map[i].location.id);
      // A pool's own device always has access; all others reach it too, as memory is the process's.
      Require(map[i].location.id != found->device || map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
              CUDA_ERROR_INVALID_VALUE);
    }
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                                                 CUmemLocation* location) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(flags);
    RequireOut(location);
    const MemoryPoolPtr pool = FindPool(memPool);
    Require(location->type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
    DeviceAt(location->id);
    *flags = location->id == pool->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(pool_out);
    *pool_out = DefaultPool(DeviceAt(dev))->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(pool);
    *pool = CurrentPool(DeviceAt(dev))->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  TALLY_ENTRY({
    RequireInitialized();
    Device& device = DeviceAt(dev);
    MemoryPoolPtr found = FindPool(pool);
    Require(found->device == dev, CUDA_ERROR_INVALID_VALUE);
    const std::lock_guard lock(device.pool_mutex);
    device.current_pool = std::move(found);
  });
}

// Memory of graph allocation nodes is held by the graphs themselves; nothing is cached beside it.
TALLY_EXPORT CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice device) {
  TALLY_ENTRY({ DeviceAt(device); });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  TALLY_ENTRY({
    const int ordinal = DeviceAt(device).ordinal();
    RequireOut(value);
    Require(attr >= CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT && attr <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
            CUDA_ERROR_INVALID_VALUE);
    const bool is_high = attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    const uint64_t used = is_high ? GraphMemoryHighBytes(ordinal).load() : GraphMemoryBytes(ordinal);
    std::memcpy(value, &used, sizeof used);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  TALLY_ENTRY({
    const int ordinal = DeviceAt(device).ordinal();
    RequireOut(value);
    uint64_t wanted = 0;
    std::memcpy(&wanted, value, sizeof wanted);
    Require((attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) && wanted == 0,
            CUDA_ERROR_INVALID_VALUE);
    GraphMemoryHighBytes(ordinal).store(GraphMemoryBytes(ordinal));
  });
}
