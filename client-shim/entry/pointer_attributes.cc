// CUDA manual: Unified Addressing, and what is left of managed memory's hints. Answered from the address map:
// frameworks ask about every pointer argument of every launch.
#include <algorithm>
#include <cstring>
#include <optional>

#include "client-shim/entry/guard.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

template <typename T>
CUresult Give(void* out, T value) {
  std::memcpy(out, &value, sizeof(value));
  return CUDA_SUCCESS;
}

CUresult Attribute(const Process& process, void* out, CUpointer_attribute attribute, CUdeviceptr pointer,
                   const Allocation& a) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Give(out, a.context == shm::kNoContext ? nullptr : process.contexts.Handle(a.context));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      // Managed memory counts as device memory, as natively.
      return Give(out,
                  static_cast<unsigned>(a.kind == MemoryKind::kPinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return Give(out, pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!a.is_host()) return CUDA_ERROR_INVALID_VALUE;
      return Give(out, reinterpret_cast<void*>(pointer));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Give(out, static_cast<unsigned>(a.sync_memory_operations));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Give(out, static_cast<unsigned long long>(a.buffer_id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Give(out, static_cast<unsigned>(a.kind == MemoryKind::kManaged));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Give(out, static_cast<int>(a.device));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Give(out, a.is_ipc_capable() ? 1u : 0u);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Give(out, 0u);  // neither is offered
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Give(out, a.address);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Give(out, static_cast<size_t>(a.size_bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Give(out, 1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Give(out, static_cast<unsigned long long>(a.handle_types));
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Give(out, static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Give(out, reinterpret_cast<CUmemoryPool>(a.pool));
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What cuPointerGetAttributes gives for a pointer it does not know, and for attributes that do not apply: zeros.
void GiveZero(void* out, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      Give(out, -2);
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      Give(out, 0u);
      break;
    default:
      Give(out, uint64_t{0});
  }
}

CUresult RangeAttribute(void* out, size_t size, CUmem_range_attribute attribute) {
  if (out == nullptr || size < 4 || size % 4 != 0) return CUDA_ERROR_INVALID_VALUE;
  int value = 0;
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      value = CU_DEVICE_INVALID;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      value = CU_MEM_LOCATION_TYPE_INVALID;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  std::fill_n(static_cast<int*>(out), size / 4, value);
  return CUDA_SUCCESS;
}

CUresult CheckManaged(CUdeviceptr pointer, size_t count) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto allocation = process->addresses.Find(pointer);
  return count != 0 && allocation && allocation->kind == MemoryKind::kManaged && allocation->Contains(pointer, count)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = process->addresses.Find(ptr);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  return Attribute(*process, data, attribute, ptr, *allocation);
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr ptr) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (attributes == nullptr || data == nullptr || numAttributes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = process->addresses.Find(ptr);
  for (unsigned int i = 0; i < numAttributes; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!allocation || Attribute(*process, data[i], attributes[i], ptr, *allocation) != CUDA_SUCCESS)
      GiveZero(data[i], attributes[i]);
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !process->addresses.Find(ptr))
    return CUDA_ERROR_INVALID_VALUE;
  process->addresses.SetSyncMemoryOperations(ptr, *static_cast<const unsigned*>(value) != 0);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto allocation = process->addresses.Find(dptr);
  if (!allocation) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = allocation->address;
  if (psize != nullptr) *psize = allocation->size_bytes;
  return CUDA_SUCCESS;
}

// Managed memory is host memory that the device reads in place: where it should live is no question. The hints are
// checked as natively and have no effect.
CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise, CUdevice) { return CheckManaged(devPtr, count); }
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise, CUmemLocation) {
  return CheckManaged(devPtr, count);
}
CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice, CUstream) {
  return CheckManaged(devPtr, count);
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation, unsigned int, CUstream) {
  return CheckManaged(devPtr, count);
}
CUresult cuStreamAttachMemAsync(CUstream, CUdeviceptr dptr, size_t, unsigned int flags) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  return CheckManaged(dptr, 1);
}

CUresult cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                size_t count) {
  if (const CUresult result = CheckManaged(devPtr, count); result != CUDA_SUCCESS) return result;
  return RangeAttribute(data, dataSize, attribute);
}

CUresult cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
  if (data == nullptr || dataSizes == nullptr || attributes == nullptr || numAttributes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckManaged(devPtr, count); result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < numAttributes; ++i) {
    if (const CUresult result = RangeAttribute(data[i], dataSizes[i], attributes[i]); result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace tally::client_shim::entry
