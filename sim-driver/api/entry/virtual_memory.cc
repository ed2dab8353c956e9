// Virtual memory management.
#include "sim-driver/api/virtual_memory.h"

#include <cstring>

#include "sim-driver/api/entry/entry.h"
#include "sim-driver/api/memory_map.h"

using namespace tally::sim_driver;

TALLY_EXPORT CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                                            CUmemAllocationGranularity_flags option) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(granularity);
    RequireOut(prop);
    Require(option == CU_MEM_ALLOC_GRANULARITY_MINIMUM || option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
            CUDA_ERROR_INVALID_VALUE);
    CheckAllocationProperties(*prop);
    *granularity = MemoryMap::kPageGranularity;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                                  unsigned long long flags) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(ptr);
    Require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    *ptr = ReserveAddresses(size, alignment, addr);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  TALLY_ENTRY({
    RequireInitialized();
    FreeAddresses(ptr, size);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                                          const CUmemAllocationProp* prop, unsigned long long flags) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(handle);
    RequireOut(prop);
    Require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    *handle = CreatePhysical(size, *prop);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  TALLY_ENTRY({
    RequireInitialized();
    ReleasePhysical(handle);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                                       unsigned long long flags) {
  TALLY_ENTRY({
    RequireInitialized();
    Require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    MapAt(ptr, size, offset, handle);
  });
}

// Work that may use the mapping is waited for: unmapped addresses would fault in our own threads.
TALLY_EXPORT CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size) {
  TALLY_ENTRY({
    RequireInitialized();
    for (const ContextPtr& context : AllContexts()) context->Synchronize();
    UnmapAt(ptr, size);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  TALLY_ENTRY({
    RequireInitialized();
    Require(desc != nullptr && count != 0, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; ++i) {
      Require(desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
      SetAccess(ptr, size, DeviceAt(desc[i].location.id).ordinal(), desc[i].flags);
    }
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                             CUdeviceptr ptr) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(flags);
    RequireOut(location);
    Require(location->type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
    *flags = AccessAt(ptr, DeviceAt(location->id).ordinal());
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                                     CUmemGenericAllocationHandle handle) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(prop);
    *prop = PropertiesOf(handle);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(handle);
    *handle = RetainPhysicalAt(reinterpret_cast<uint64_t>(addr));
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                                           CUmemAllocationHandleType handleType,
                                                           unsigned long long flags) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(shareableHandle);
    Require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    Require(handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    const int fd = ExportPhysical(handle);
    std::memcpy(shareableHandle, &fd, sizeof fd);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                                             CUmemAllocationHandleType shHandleType) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(handle);
    Require(shHandleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    *handle = ImportPhysical(static_cast<int>(reinterpret_cast<intptr_t>(osHandle)));
  });
}
