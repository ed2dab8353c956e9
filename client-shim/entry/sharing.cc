// CUDA manual: what one program hands to another: IPC handles of memory and events, exported handles of physical
// memory. A handle is 64 bytes that name an object in the executor (records_sharing_abi.h, SharedName), an exported
// descriptor is a memfd that holds them: both may travel as the program likes. Memory has the same address in every
// program.
#include "client-shim/entry/sharing.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "base/mapped_region.h"
#include "base/unique_fd.h"
#include "client-shim/entry/guard.h"
#include "client-shim/state/process.h"
#include "client-shim/state/refusals.h"
#include "client-shim/state/streams.h"
#include "proto/driver/generated/client_calls.h"
#include "proto/shm/records_sharing_abi.h"

namespace tally::client_shim::entry {
namespace {

static_assert(sizeof(CUipcMemHandle) == sizeof(shm::SharedName));
static_assert(sizeof(CUipcEventHandle) == sizeof(shm::SharedName));

CUresult OfferObject(const Call& call, shm::SharedKind kind, uint64_t what, void* name) {
  const Reply reply = call.channel->CallStruct(shm::Op::kOffer, shm::Offer{static_cast<uint32_t>(kind), 0, what});
  if (reply.result != CUDA_SUCCESS) return reply.result;
  call.process->shares_memory = true;
  const auto given = reply.Read<shm::SharedName>();
  std::memcpy(name, &given, sizeof(given));
  return CUDA_SUCCESS;
}

// `name` is what the program was given; it may be anything.
CUresult OpenObject(const Call& call, shm::SharedKind kind, const void* name, uint64_t handle, bool enables_peers,
                    shm::OpenedShared* opened) {
  shm::OpenShared request{};
  std::memcpy(&request.name, name, sizeof(request.name));
  if (request.name.magic != shm::kSharedMagic || request.name.kind != static_cast<uint32_t>(kind))
    return CUDA_ERROR_INVALID_VALUE;
  request.handle = handle;
  request.enables_peers = enables_peers ? 1 : 0;
  const Reply reply = call.channel->CallStruct(shm::Op::kOpenShared, request);
  if (reply.result == CUDA_ERROR_NOT_SUPPORTED)
    return RefuseUse("cuIpcOpenMemHandle_v2: what the driver cannot share between executors, or a pool of another one");
  if (reply.result == CUDA_ERROR_NOT_PERMITTED) return RefuseSecondRank();
  if (reply.result != CUDA_SUCCESS) return reply.result;
  call.process->shares_memory = true;
  *opened = reply.Read<shm::OpenedShared>();
  return CUDA_SUCCESS;
}

// An exported handle as the program holds it: a descriptor of a memfd with the name in it. It may go to other programs
// like any other descriptor.
CUresult GiveDescriptor(const shm::SharedName& name, void* handle) {
  auto fd = CreateSealedMemfd("tally-shared", sizeof(name));
  if (!fd || ::pwrite(fd->get(), &name, sizeof(name), 0) != static_cast<ssize_t>(sizeof(name)))
    return CUDA_ERROR_OPERATING_SYSTEM;
  const int given = fd->Release();
  std::memcpy(handle, &given, sizeof(given));
  return CUDA_SUCCESS;
}

// The descriptor stays the program's, as natively.
bool ReadDescriptor(void* handle, shm::SharedName* name) {
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(handle));
  return ::pread(fd, name, sizeof(*name), 0) == static_cast<ssize_t>(sizeof(*name));
}

// What leaves the program, and comes into it, as a descriptor.
CUresult ExportObject(const Call& call, shm::SharedKind kind, uint64_t what, void* handle) {
  shm::SharedName name{};
  const CUresult result = OfferObject(call, kind, what, &name);
  return result == CUDA_SUCCESS ? GiveDescriptor(name, handle) : result;
}
CUresult ImportObject(const Call& call, shm::SharedKind kind, void* handle, shm::OpenedShared* opened) {
  shm::SharedName name{};
  return ReadDescriptor(handle, &name) ? OpenObject(call, kind, &name, 0, false, opened) : CUDA_ERROR_INVALID_VALUE;
}

bool EnablesPeers(unsigned int flags) { return (flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != 0; }

CUresult BeginIpcOpen(Call* call, const CUdeviceptr* address, unsigned int flags) {
  if (const CUresult result = BeginCallInContext(call); result != CUDA_SUCCESS) return result;
  const bool are_known = (flags & ~static_cast<unsigned>(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) == 0;
  return address != nullptr && are_known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// `pool` null: an IPC handle; else memory of the opened pool. `num_opens`, if wanted: how often it is open now.
CUresult OpenMemory(const Call& call, const void* name, CUmemoryPool pool, bool enables_peers, CUdeviceptr* address,
                    uint32_t* num_opens = nullptr) {
  // What is open is counted by the executor; here nobody may look between its answer and our books.
  const std::lock_guard lock(call.process->opening_mutex);
  shm::OpenedShared opened{};
  if (const CUresult result = OpenObject(call, shm::SharedKind::kAllocation, name, reinterpret_cast<uint64_t>(pool),
                                         enables_peers, &opened);
      result != CUDA_SUCCESS)
    return result;
  if (opened.num_opens == 1) {
    if (!call.process->reservations.Hold(opened.value, opened.size_bytes)) {
      call.channel->CallStruct(shm::Op::kCloseShared, opened.value);
      return RefuseUse("cuIpcOpenMemHandle: memory at addresses that this program uses for something else");
    }
    Allocation allocation;
    allocation.address = opened.value;
    allocation.size_bytes = opened.size_bytes;
    allocation.reserved_bytes = opened.size_bytes;
    allocation.kind = MemoryKind::kOpened;
    allocation.pool = reinterpret_cast<uint64_t>(pool);
    allocation.context = t_thread.context;
    allocation.device = call.process->client_ordinal(opened.device);
    call.process->addresses.Insert(allocation);
  }
  *address = opened.value;
  if (num_opens != nullptr) *num_opens = opened.num_opens;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CloseMemory(const Call& call, CUdeviceptr address) {
  const std::lock_guard lock(call.process->opening_mutex);
  const auto allocation = call.process->addresses.Find(address);
  if (!allocation || allocation->kind != MemoryKind::kOpened || allocation->address != address)
    return CUDA_ERROR_INVALID_VALUE;
  const Reply reply = call.channel->CallStruct(shm::Op::kCloseShared, uint64_t{address});
  if (reply.result != CUDA_SUCCESS) return reply.result;
  if (reply.Read<uint64_t>() == 0) {
    if (const auto removed = call.process->addresses.Remove(address)) ReleaseAllocation(call.process, *removed);
  }
  return FinishWait(call.channel);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = call.process->addresses.Find(dptr);
  if (!allocation || !allocation->is_ipc_capable()) return CUDA_ERROR_INVALID_VALUE;
  return OfferObject(call, shm::SharedKind::kAllocation, allocation->address, pHandle);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  Call call;
  if (const CUresult result = BeginIpcOpen(&call, pdptr, Flags); result != CUDA_SUCCESS) return result;
  return OpenMemory(call, &handle, nullptr, EnablesPeers(Flags), pdptr);
}
// The form of CUDA 4.1 does not count: what is open is refused.
CUresult cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  CUdeviceptr address = 0;
  uint32_t num_opens = 0;
  Call call;
  if (const CUresult result = BeginIpcOpen(&call, pdptr, Flags); result != CUDA_SUCCESS) return result;
  if (const CUresult result = OpenMemory(call, &handle, nullptr, EnablesPeers(Flags), &address, &num_opens);
      result != CUDA_SUCCESS)
    return result;
  if (num_opens > 1) {
    const CUresult closed = CloseMemory(call, address);
    return closed != CUDA_SUCCESS ? closed : CUDA_ERROR_ALREADY_MAPPED;
  }
  *pdptr = address;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  const auto allocation = call.process->addresses.Find(dptr);
  if (allocation && allocation->is_opened_from_pool()) return CUDA_ERROR_INVALID_VALUE;  // it is freed, not closed
  return CloseMemory(call, dptr);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Event* known = call.process->events.Find(reinterpret_cast<uint64_t>(event));
  if (known == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!known->is_interprocess()) return CUDA_ERROR_INVALID_VALUE;
  return OfferObject(call, shm::SharedKind::kEvent, known->handle, pHandle);
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto event = std::make_unique<Event>();
  event->handle = call.process->event_names.Take();
  if (event->handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  event->context = t_thread.context;
  event->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  const uint64_t name = event->handle;
  shm::OpenedShared opened{};
  if (const CUresult result = OpenObject(call, shm::SharedKind::kEvent, &handle, name, false, &opened);
      result != CUDA_SUCCESS) {
    call.process->event_names.Return(name);
    return result;
  }
  call.process->events.Insert(std::move(event));
  *phEvent = reinterpret_cast<CUevent>(name);
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (shareableHandle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return RefuseUse("cuMemExportToShareableHandle: handles other than POSIX file descriptors");
  return ExportObject(call, shm::SharedKind::kPhysical, handle, shareableHandle);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return RefuseUse("cuMemImportFromShareableHandle: handles other than POSIX file descriptors");
  shm::OpenedShared opened{};
  if (const CUresult result = ImportObject(call, shm::SharedKind::kPhysical, osHandle, &opened); result != CUDA_SUCCESS)
    return result;
  *handle = opened.value;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
                                          unsigned long long flags) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (handle_out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return RefuseUse("cuMemPoolExportToShareableHandle: handles other than POSIX file descriptors");
  return ExportObject(call, shm::SharedKind::kPool, reinterpret_cast<uint64_t>(pool), handle_out);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle, CUmemAllocationHandleType handleType,
                                            unsigned long long flags) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (pool_out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return RefuseUse("cuMemPoolImportFromShareableHandle: handles other than POSIX file descriptors");
  shm::OpenedShared opened{};
  if (const CUresult result = ImportObject(call, shm::SharedKind::kPool, handle, &opened); result != CUDA_SUCCESS)
    return result;
  *pool_out = reinterpret_cast<CUmemoryPool>(opened.value);
  const CUdevice device = call.process->client_ordinal(opened.device);
  call.process->pools.Add(opened.value, device >= 0 ? device : call.process->current_device());
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  static_assert(sizeof(CUmemPoolPtrExportData) == sizeof(shm::SharedName));
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (shareData_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = call.process->addresses.Find(ptr);
  if (!allocation || allocation->kind != MemoryKind::kDevice || !allocation->is_from_pool || allocation->address != ptr)
    return CUDA_ERROR_INVALID_VALUE;
  return OfferObject(call, shm::SharedKind::kAllocation, ptr, shareData_out);
}

CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData* shareData) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (ptr_out == nullptr || pool == nullptr || shareData == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return OpenMemory(call, shareData, pool, true, ptr_out);
}

}  // namespace tally::client_shim::entry
