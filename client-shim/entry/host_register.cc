// CUDA manual: Memory Management, registration of the program's own memory. Private pages are replaced by shared ones
// with the same bytes at the same address; memory that is a shared file already is shared itself. Either way the
// executor maps it too, and the device sees it where the executor does: at the same address if nothing else is there.
#include <pthread.h>

#include <mutex>

#include "base/mapped_region.h"
#include "client-shim/entry/guard.h"
#include "client-shim/state/own_mappings.h"
#include "client-shim/state/process.h"
#include "client-shim/state/refusals.h"
#include "client-shim/state/streams.h"
#include "client-shim/transport/session.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

struct PageRange {
  uint64_t begin, end;
  uint64_t size_bytes() const { return end - begin; }
};

PageRange PagesOf(uint64_t address, uint64_t size_bytes) {
  return {address / kPageBytes * kPageBytes, (address + size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes};
}

// The stack that this very code runs on cannot be replaced under it.
bool IsOwnStack(const PageRange& pages) {
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return false;
  void* lowest = nullptr;
  size_t size = 0;
  const bool is_known = ::pthread_attr_getstack(&attributes, &lowest, &size) == 0;
  ::pthread_attr_destroy(&attributes);
  const auto begin = reinterpret_cast<uint64_t>(lowest);
  return is_known && pages.begin < begin + size && begin < pages.end;
}

// Puts the pages where the executor can map them, and has it do so. With the registrations' mutex.
CUresult Share(const Call& call, const PageRange& pages, uint64_t* server_address) {
  RangeBacking backing = FindBacking(pages.begin, pages.end);
  const int device = call.process->server_ordinal(call.process->current_device());
  Session* session = CurrentSession();
  switch (backing.kind) {
    case Backing::kNothing:
      return CUDA_ERROR_INVALID_VALUE;
    case Backing::kForeign:
      return RefuseUse("cuMemHostRegister: memory of a device, in huge pages, or executable");
    case Backing::kFile:
      if (!backing.file.valid()) return RefuseUse("cuMemHostRegister: a shared mapping whose file cannot be opened");
      return session->RegisterHost(backing.file.get(), backing.file_offset_bytes, pages.begin, pages.size_bytes(),
                                   device, server_address);
    case Backing::kOwnPages:
      break;
  }
  if (IsOwnStack(pages)) return RefuseUse("cuMemHostRegister: the calling thread's own stack");
  const auto memory = CreateSealedMemfd("tally-registered", pages.size_bytes());
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult result =
          session->RegisterHost(memory->get(), 0, pages.begin, pages.size_bytes(), device, server_address);
      result != CUDA_SUCCESS)
    return result;
  if (call.process->registered.Share(pages.begin, pages.size_bytes(), memory->get())) return CUDA_SUCCESS;
  call.channel->CallStruct(shm::Op::kFreeHost, *server_address);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                              CU_MEMHOSTREGISTER_READ_ONLY;
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  const auto address = reinterpret_cast<uint64_t>(p);
  if (address == 0 || bytesize == 0 || address + bytesize < address || address + bytesize > UINT64_MAX - kPageBytes ||
      (Flags & ~kKnown) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return RefuseUse("cuMemHostRegister: CU_MEMHOSTREGISTER_IOMEMORY");
  if ((Flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0) return RefuseUse("cuMemHostRegister: CU_MEMHOSTREGISTER_READ_ONLY");
  if (const CUresult result = call.process->captures.CheckUnsafe(); result != CUDA_SUCCESS) return result;

  const PageRange pages = PagesOf(address, bytesize);
  const std::lock_guard lock(call.process->registered.mutex());
  if (const auto other = call.process->addresses.FindOverlap(pages.begin, pages.size_bytes()))
    return other->is_host() ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_ERROR_INVALID_VALUE;
  uint64_t server_address = 0;
  if (const CUresult result = Share(call, pages, &server_address); result != CUDA_SUCCESS)
    return result == CUDA_ERROR_NOT_PERMITTED ? RefuseSecondRank() : result;

  Allocation allocation;
  allocation.address = address;
  allocation.size_bytes = bytesize;
  allocation.kind = MemoryKind::kRegistered;
  allocation.context = t_thread.context;
  allocation.device = call.process->current_device();
  allocation.host_flags = Flags | CU_MEMHOSTREGISTER_DEVICEMAP;
  allocation.registered_page = pages.begin;
  allocation.host_address = address;
  allocation.device_address = server_address + (address - pages.begin);
  if (server_address != pages.begin) {
    // The device's address is a pointer in its own right: nothing else of this process may be there.
    if (!call.process->reservations.Hold(allocation.device_address, bytesize)) {
      call.process->registered.GiveBack(pages.begin);
      call.channel->CallStruct(shm::Op::kFreeHost, server_address);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    Allocation view = allocation;
    view.address = allocation.device_address;
    view.reserved_bytes = bytesize;
    call.process->addresses.Insert(view);
  }
  call.process->addresses.Insert(allocation);
  return CUDA_SUCCESS;
}
CUresult cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
  return entry::cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void* p) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = call.process->captures.CheckUnsafe(); result != CUDA_SUCCESS) return result;
  const auto address = reinterpret_cast<uint64_t>(p);
  const auto found = call.process->addresses.Find(address);
  if (!found || found->address != address || found->kind != MemoryKind::kRegistered || found->is_device_view())
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  const auto removed = call.process->addresses.Remove(address);
  if (!removed) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  const uint64_t page_offset = address - removed->registered_page;
  const Reply reply = call.channel->CallStruct(shm::Op::kFreeHost, removed->device_address - page_offset);
  if (removed->device_address != address) {
    if (const auto view = call.process->addresses.Remove(removed->device_address))
      ReleaseAllocation(call.process, *view);
  }
  ReleaseAllocation(call.process, *removed);
  return reply.result != CUDA_SUCCESS ? reply.result : FinishWait(call.channel);
}

}  // namespace tally::client_shim::entry
