// CUDA manual: Memory Management, allocation. Device memory has the same addresses here as in the executor; they are
// held without access in this process. Host memory is mapped by both.
#include <sys/mman.h>

#include <vector>

#include "client-shim/entry/guard.h"
#include "client-shim/entry/sharing.h"
#include "client-shim/state/process.h"
#include "client-shim/state/streams.h"
#include "client-shim/transport/session.h"
#include "proto/driver/generated/client_calls.h"
#include "proto/shm/records_memory_abi.h"

namespace tally::client_shim::entry {
namespace {

// How often an allocation is repeated when its addresses are taken in this process. Each try holds the last, so that
// the executor's driver has to find another place.
constexpr int kMaxTries = 8;

Allocation NewAllocation(const Process& process, uint64_t address, uint64_t size_bytes, MemoryKind kind) {
  Allocation allocation;
  allocation.address = address;
  allocation.size_bytes = size_bytes;
  allocation.kind = kind;
  allocation.context = t_thread.context;
  allocation.device = process.current_device();
  return allocation;
}

// Asks until the answer's addresses are free here. `ask` returns the address and the bytes that really belong to it,
// `give_back` frees one that could not be used.
template <typename Ask, typename GiveBack>
CUresult AllocateWhereFree(Process* process, Ask ask, GiveBack give_back, Allocation* allocation) {
  std::vector<uint64_t> collided;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (int attempt = 0; attempt < kMaxTries; ++attempt) {
    uint64_t address = 0, size_bytes = 0;
    result = ask(&address, &size_bytes);
    if (result != CUDA_SUCCESS) break;
    if (process->reservations.Hold(address, size_bytes)) {
      *allocation = NewAllocation(*process, address, size_bytes, MemoryKind::kDevice);
      allocation->reserved_bytes = size_bytes;
      break;
    }
    collided.push_back(address);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (const uint64_t address : collided) give_back(address);
  return result;
}

CUresult AllocateSync(size_t size_bytes, size_t height, unsigned element_bytes, CUdeviceptr* address, size_t* pitch) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (address == nullptr || size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = call.process->captures.CheckUnsafe(); result != CUDA_SUCCESS) return result;
  Allocation allocation;
  const CUresult result = AllocateWhereFree(
      call.process,
      [&](uint64_t* found, uint64_t* found_bytes) {
        const Reply reply = call.channel->CallStruct(
            shm::Op::kAllocate, shm::Allocate{size_bytes, height, static_cast<uint32_t>(element_bytes), 0});
        *found = reply.Read<uint64_t>();
        const auto row_bytes = reply.Read<uint64_t>(8);
        *found_bytes = height != 0 ? row_bytes * height : size_bytes;
        if (pitch != nullptr) *pitch = row_bytes;
        return reply.result;
      },
      [&](uint64_t taken) { call.channel->CallStruct(shm::Op::kFree, taken); }, &allocation);
  if (result != CUDA_SUCCESS) return result;
  call.process->addresses.Insert(allocation);
  *address = allocation.address;
  return CUDA_SUCCESS;
}

// `pool` 0: the current one of the stream's device.
CUresult AllocateInOrder(CUdeviceptr* address, size_t size_bytes, uint64_t pool, CUstream stream) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t word = 0;
  if (const CUresult result = ResolveStream(stream, &word); result != CUDA_SUCCESS) return result;
  if (size_bytes == 0) {
    *address = 0;
    return CUDA_SUCCESS;
  }
  if (pool == 0) pool = call.process->pools.Current(call.process->contexts[ContextOfStream(word)].device);
  Allocation allocation;
  bool is_graph_memory = false;
  const CUresult result = AllocateWhereFree(
      call.process,
      [&](uint64_t* found, uint64_t* found_bytes) {
        const Reply reply =
            call.channel->CallStruct(shm::Op::kAllocateAsync, shm::AllocateAsync{size_bytes, pool, word});
        *found = reply.Read<uint64_t>();
        is_graph_memory = reply.Read<uint64_t>(8) != 0;
        *found_bytes = size_bytes;
        return reply.result;
      },
      [&](uint64_t taken) {
        call.channel->PostStruct(shm::Op::kFreeAsync, shm::FreeAsync{taken, word});
      },
      &allocation);
  if (result != CUDA_SUCCESS) return result;
  allocation.pool = pool;
  allocation.is_graph_memory = is_graph_memory;
  allocation.is_from_pool = true;
  call.process->addresses.Insert(allocation);
  *address = allocation.address;
  return CUDA_SUCCESS;
}

CUresult AllocateShared(size_t size_bytes, shm::HostMemoryUse use, unsigned flags, void** address) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (address == nullptr || size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = call.process->captures.CheckUnsafe(); result != CUDA_SUCCESS) return result;
  Session::HostMemory memory;
  const int device = call.process->server_ordinal(call.process->current_device());
  if (const CUresult result = CurrentSession()->AllocateHost(size_bytes, device, use, &memory); result != CUDA_SUCCESS)
    return result;
  Allocation allocation =
      NewAllocation(*call.process, reinterpret_cast<uint64_t>(memory.address), size_bytes,
                    use == shm::HostMemoryUse::kManaged ? MemoryKind::kManaged : MemoryKind::kPinned);
  allocation.mapped_bytes = memory.mapped_bytes;
  allocation.host_flags = flags;
  call.process->addresses.Insert(allocation);
  *address = memory.address;
  return CUDA_SUCCESS;
}

// Host memory of either use. The executor forgets it first, once nothing on the device uses it.
// Forgets first: once the executor has freed the address, another thread's allocation may get it.
CUresult FreeAndForget(const Call& call, shm::Op op, uint64_t address) {
  const auto removed = call.process->addresses.Remove(address);
  if (!removed) return CUDA_ERROR_INVALID_VALUE;
  const Reply reply = call.channel->CallStruct(op, address);
  if (reply.result != CUDA_SUCCESS) {
    call.process->addresses.Insert(*removed);
    return reply.result;
  }
  ReleaseAllocation(call.process, *removed);
  return FinishWait(call.channel);
}

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) { return AllocateSync(bytesize, 0, 0, dptr, nullptr); }

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pPitch == nullptr || Height == 0 || (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
    return CUDA_ERROR_INVALID_VALUE;
  return AllocateSync(WidthInBytes, Height, ElementSizeBytes, dptr, pPitch);
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (dptr == 0) return CUDA_SUCCESS;
  if (const CUresult result = call.process->captures.CheckUnsafe(); result != CUDA_SUCCESS) return result;
  const auto allocation = call.process->addresses.Find(dptr);
  if (allocation && allocation->is_opened_from_pool()) return CloseMemory(call, dptr);
  if (!allocation || allocation->address != dptr ||
      (allocation->kind != MemoryKind::kDevice && allocation->kind != MemoryKind::kManaged))
    return CUDA_ERROR_INVALID_VALUE;
  if (allocation->is_graph_memory) {
    const Reply reply = call.channel->CallStruct(shm::Op::kFree, dptr);
    return reply.result != CUDA_SUCCESS ? reply.result : FinishWait(call.channel);
  }
  if (allocation->kind == MemoryKind::kManaged) return FreeAndForget(call, shm::Op::kFreeHost, dptr);
  return FreeAndForget(call, shm::Op::kFree, dptr);
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return AllocateInOrder(dptr, bytesize, 0, hStream);
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AllocateInOrder(dptr, bytesize, reinterpret_cast<uint64_t>(pool), hStream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  uint64_t word = 0;
  if (const CUresult result = ResolveStream(hStream, &word); result != CUDA_SUCCESS) return result;
  if (dptr == 0) return CUDA_SUCCESS;
  const auto allocation = call.process->addresses.Find(dptr);
  if (allocation && allocation->is_opened_from_pool()) return CloseMemory(call, dptr);
  if (!allocation || allocation->address != dptr || allocation->kind != MemoryKind::kDevice)
    return CUDA_ERROR_INVALID_VALUE;
  // While a capture is open the free may be recorded, not done; what a graph allocated it may allocate again.
  if (!call.process->captures.any() && !allocation->is_graph_memory) {
    if (const auto removed = call.process->addresses.Remove(dptr)) ReleaseAllocation(call.process, *removed);
  }
  return call.channel->PostStruct(shm::Op::kFreeAsync, shm::FreeAsync{dptr, word});
}

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  constexpr unsigned kKnown = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if ((Flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  // Write-combining is a hint about speed; the memory is cached here.
  return AllocateShared(bytesize, shm::HostMemoryUse::kPinned, Flags | CU_MEMHOSTALLOC_DEVICEMAP, pp);
}
CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return AllocateShared(bytesize, shm::HostMemoryUse::kPinned, CU_MEMHOSTALLOC_DEVICEMAP, pp);
}

CUresult cuMemFreeHost(void* p) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (p == nullptr) return CUDA_SUCCESS;
  if (const CUresult result = call.process->captures.CheckUnsafe(); result != CUDA_SUCCESS) return result;
  const auto allocation = call.process->addresses.Find(reinterpret_cast<uint64_t>(p));
  if (!allocation || allocation->address != reinterpret_cast<uint64_t>(p) || allocation->kind != MemoryKind::kPinned)
    return CUDA_ERROR_INVALID_VALUE;
  return FreeAndForget(call, shm::Op::kFreeHost, allocation->address);
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  if (CurrentProcess() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (dptr == nullptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  void* address = nullptr;
  const CUresult result = AllocateShared(bytesize, shm::HostMemoryUse::kManaged, flags, &address);
  if (result == CUDA_SUCCESS) *dptr = reinterpret_cast<CUdeviceptr>(address);
  return result;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  const Reply reply = call.channel->CallEmpty(shm::Op::kMemoryAmount);
  if (reply.result != CUDA_SUCCESS) return reply.result;
  if (free != nullptr) *free = reply.Read<uint64_t>();
  if (total != nullptr) *total = reply.Read<uint64_t>(8);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pdptr == nullptr || Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = process->addresses.Find(reinterpret_cast<uint64_t>(p));
  if (!allocation || !allocation->is_host()) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = allocation->DeviceAddressOf(reinterpret_cast<uint64_t>(p));
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (pFlags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto allocation = process->addresses.Find(reinterpret_cast<uint64_t>(p));
  if (!allocation || !allocation->is_host() || allocation->kind == MemoryKind::kManaged)
    return CUDA_ERROR_INVALID_VALUE;
  *pFlags = allocation->host_flags;
  return CUDA_SUCCESS;
}

}  // namespace tally::client_shim::entry
