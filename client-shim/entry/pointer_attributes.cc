// CUDA manual: Unified Addressing, what a pointer is. Answered from the address map: frameworks ask about every pointer
// argument of every launch. (Hints for managed memory are in managed_memory.cc.)
#include <cstring>
#include <optional>

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
      return Give(out, static_cast<unsigned>(a.kind == MemoryKind::kPinned || a.kind == MemoryKind::kRegistered
                                                 ? CU_MEMORYTYPE_HOST
                                                 : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return Give(out, static_cast<CUdeviceptr>(a.DeviceAddressOf(pointer)));
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!a.is_host() && !a.is_managed()) return CUDA_ERROR_INVALID_VALUE;
      return Give(out, reinterpret_cast<void*>(a.HostAddressOf(pointer)));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Give(out, static_cast<unsigned>(a.sync_memory_operations));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Give(out, static_cast<unsigned long long>(a.buffer_id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Give(out, static_cast<unsigned>(a.is_managed()));
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
      if (a.is_from_pool && a.pool == 0) {
        CUmemoryPool pool = nullptr;
        if (const CUresult result = wire::cuDeviceGetDefaultMemPool(&pool, a.device); result != CUDA_SUCCESS)
          return result;
        return Give(out, pool);
      }
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

}  // namespace tally::client_shim::entry
