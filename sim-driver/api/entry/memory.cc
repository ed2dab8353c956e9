// Allocation, pinned memory, pointer attributes, managed-memory hints.
#include "sim-driver/api/memory.h"

#include <algorithm>
#include <cstring>

#include "sim-driver/api/entry/entry.h"

using namespace tally::sim_driver;

namespace {

uint64_t AllocateDevice(uint64_t num_bytes) {
  const ContextPtr context = EnterContext();
  RefuseUnsafeCall(context);
  MemoryRegion shape;
  shape.num_bytes = num_bytes;
  return AcquireMemory(*context, shape, 0);
}

}  // namespace

TALLY_EXPORT CUresult CUDAAPI cuMemGetInfo_v2(size_t* free, size_t* total) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(free);
    RequireOut(total);
    const Device& device = context->device();
    *total = device.total_bytes();
    *free = device.total_bytes() - std::min(device.used_bytes(), device.total_bytes());
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(dptr);
    *dptr = AllocateDevice(bytesize);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                                                 unsigned int ElementSizeBytes) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(dptr);
    RequireOut(pPitch);
    Require(WidthInBytes != 0 && Height != 0, CUDA_ERROR_INVALID_VALUE);
    Require(ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16, CUDA_ERROR_INVALID_VALUE);
    constexpr size_t kPitchUnit = MemoryMap::kGranularity;
    Require(WidthInBytes <= size_t{1} << 40, CUDA_ERROR_OUT_OF_MEMORY);
    const size_t pitch = (WidthInBytes + kPitchUnit - 1) / kPitchUnit * kPitchUnit;
    size_t num_bytes = 0;
    Require(!__builtin_mul_overflow(pitch, Height, &num_bytes), CUDA_ERROR_OUT_OF_MEMORY);
    *dptr = AllocateDevice(num_bytes);
    *pPitch = pitch;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemFree_v2(CUdeviceptr dptr) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    if (dptr == 0) return CUDA_SUCCESS;
    RefuseUnsafeCall(context);
    FreeDevice(*context, dptr);
    return CUDA_SUCCESS;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  TALLY_ENTRY({
    EnterContext();
    const auto region = MemoryMap::Get().Find(dptr);
    Require(region.has_value(), CUDA_ERROR_NOT_FOUND);
    if (pbase != nullptr) *pbase = region->base;
    if (psize != nullptr) *psize = region->num_bytes;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(pp);
    RefuseUnsafeCall(context);
    *pp = AllocateHost(*context, bytesize, Flags);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemAllocHost_v2(void** pp, size_t bytesize) { return cuMemHostAlloc(pp, bytesize, 0); }

TALLY_EXPORT CUresult CUDAAPI cuMemFreeHost(void* p) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    if (p == nullptr) return CUDA_SUCCESS;
    RefuseUnsafeCall(context);
    FreeHost(*context, p);
    return CUDA_SUCCESS;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RefuseUnsafeCall(context);
    RegisterHost(*context, p, bytesize, Flags);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
  return cuMemHostRegister_v2(p, bytesize, Flags);
}

TALLY_EXPORT CUresult CUDAAPI cuMemHostUnregister(void* p) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RefuseUnsafeCall(context);
    UnregisterHost(*context, p);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(pdptr);
    Require(Flags == 0, CUDA_ERROR_INVALID_VALUE);
    const auto region = MemoryMap::Get().Find(reinterpret_cast<uint64_t>(p));
    Require(region && region->IsHost(), CUDA_ERROR_INVALID_VALUE);
    *pdptr = reinterpret_cast<CUdeviceptr>(p);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(pFlags);
    const auto region = MemoryMap::Get().Find(reinterpret_cast<uint64_t>(p));
    Require(region && region->IsHost(), CUDA_ERROR_INVALID_VALUE);
    *pFlags = region->flags;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  TALLY_ENTRY({
    const ContextPtr context = EnterContext();
    RequireOut(dptr);
    Require(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST, CUDA_ERROR_INVALID_VALUE);
    RefuseUnsafeCall(context);
    MemoryRegion shape;
    shape.num_bytes = bytesize;
    shape.kind = MemoryKind::kManaged;
    shape.flags = flags;
    *dptr = AcquireMemory(*context, shape, 0);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(data);
    return PointerAttribute(data, attribute, ptr);
  });
}

// An attribute that does not apply reads as zero here, instead of failing the call.
TALLY_EXPORT CUresult CUDAAPI cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                                     void** data, CUdeviceptr ptr) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(attributes);
    RequireOut(data);
    for (unsigned i = 0; i < numAttributes; ++i) {
      RequireOut(data[i]);
      if (PointerAttribute(data[i], attributes[i], ptr) == CUDA_SUCCESS) continue;
      switch (attributes[i]) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
          std::memset(data[i], 0, 8);
          break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
          const int none = -2;
          std::memcpy(data[i], &none, sizeof none);
          break;
        }
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
          std::memset(data[i], 0, 4);
          break;
        default:
          Fail(CUDA_ERROR_INVALID_VALUE);
      }
    }
  });
}

TALLY_EXPORT CUresult CUDAAPI cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  TALLY_ENTRY({
    EnterContext();
    Require(value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUDA_ERROR_INVALID_VALUE);
    const auto region = MemoryMap::Get().Find(ptr);
    Require(region.has_value(), CUDA_ERROR_INVALID_VALUE);
    unsigned synchronizes = 0;
    std::memcpy(&synchronizes, value, sizeof synchronizes);
    MemoryMap::Get().Update(region->base,
                            [synchronizes](MemoryRegion& changed) { changed.synchronizes = synchronizes != 0; });
  });
}

// Managed memory is plain memory here: hints are checked and have no effect.
namespace {

void RequireManaged(CUdeviceptr address, size_t num_bytes) {
  const auto region = MemoryMap::Get().Find(address);
  Require(region && region->kind == MemoryKind::kManaged && num_bytes != 0 && num_bytes <= region->end() - address,
          CUDA_ERROR_INVALID_VALUE);
}

}  // namespace

TALLY_EXPORT CUresult CUDAAPI cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise, CUdevice) {
  TALLY_ENTRY({
    EnterContext();
    RequireManaged(devPtr, count);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise, CUmemLocation) {
  TALLY_ENTRY({
    EnterContext();
    RequireManaged(devPtr, count);
  });
}

// As on every device without concurrent managed access (attribute 89).
TALLY_EXPORT CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice, CUstream hStream) {
  TALLY_ENTRY({
    UseStream(hStream);
    RequireManaged(devPtr, count);
    return CUDA_ERROR_INVALID_DEVICE;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                                    unsigned int flags, CUstream hStream) {
  TALLY_ENTRY({
    UseStream(hStream);
    Require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    RequireManaged(devPtr, count);
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                                     unsigned int flags) {
  TALLY_ENTRY({
    UseStream(hStream);
    Require(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE,
            CUDA_ERROR_INVALID_VALUE);
    const auto region = MemoryMap::Get().Find(dptr);
    Require(region && region->kind == MemoryKind::kManaged && region->base == dptr &&
                (length == 0 || length == region->num_bytes),
            CUDA_ERROR_INVALID_VALUE);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute,
                                                     CUdeviceptr devPtr, size_t count) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(data);
    RequireManaged(devPtr, count);
    constexpr int kNoLocation = CU_DEVICE_INVALID;
    switch (attribute) {
      case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        Require(dataSize == 4, CUDA_ERROR_INVALID_VALUE);
        std::memset(data, 0, 4);
        break;
      case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        Require(dataSize == 4, CUDA_ERROR_INVALID_VALUE);
        std::memcpy(data, &kNoLocation, 4);
        break;
      case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        Require(dataSize != 0 && dataSize % 4 == 0, CUDA_ERROR_INVALID_VALUE);
        for (size_t i = 0; i < dataSize; i += 4) std::memcpy(static_cast<char*>(data) + i, &kNoLocation, 4);
        break;
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                                      size_t numAttributes, CUdeviceptr devPtr, size_t count) {
  TALLY_ENTRY({
    EnterContext();
    Require(data != nullptr && dataSizes != nullptr && attributes != nullptr && numAttributes != 0,
            CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < numAttributes; ++i) {
      RequireSuccess(cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count));
    }
  });
}
