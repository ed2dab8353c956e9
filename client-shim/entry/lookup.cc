#include "client-shim/entry/lookup.h"

#include <cstring>

#include "client-shim/entry/guard.h"
#include "client-shim/state/refusals.h"

namespace tally::client_shim {
namespace {

std::byte* BeginByName(Channel* channel, shm::Op op, uint64_t owner, const char* name, uint32_t detail = 0) {
  const size_t size = std::strlen(name);
  if (size > shm::kMaxRequestBytes / 2) return nullptr;
  std::byte* room = channel->Begin(op, static_cast<uint32_t>(sizeof(shm::GetByName) + size));
  if (room == nullptr) return nullptr;
  const shm::GetByName request{owner, static_cast<uint32_t>(size), detail};
  std::memcpy(room, &request, sizeof(request));
  std::memcpy(room + sizeof(request), name, size);
  return room;
}

}  // namespace

CUresult LookUpKernel(const Call& call, shm::Op op, uint64_t owner, const char* name, Kernel** kernel) {
  if (BeginByName(call.channel, op, owner, name) == nullptr) return call.channel->failure();
  const Reply reply = call.channel->Call();
  if (reply.result != CUDA_SUCCESS) return reply.result;
  *kernel = call.process->kernels.File(*call.process, reply, owner, name);
  return *kernel != nullptr ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult LookUpGlobal(const Call& call, uint64_t owner, const char* name, CUdeviceptr* address, size_t* size_bytes,
                      bool only_managed) {
  if (BeginByName(call.channel, shm::Op::kGetGlobal, owner, name, only_managed ? shm::kOnlyManaged : 0) == nullptr)
    return call.channel->failure();
  // Managed variables are the same on all devices, and the runtime asks for them before it has a context.
  const bool has_context = t_thread.context != shm::kNoContext || !only_managed;
  const uint32_t context =
      has_context ? t_thread.context : static_cast<uint32_t>(call.process->server_ordinal(CUdevice{0}));
  call.channel->SetContext(context);
  const Reply reply = call.channel->Call();
  if (reply.result != CUDA_SUCCESS) return reply.result;
  const auto global = reply.Read<shm::GlobalDescription>();
  if (address != nullptr) *address = global.address;
  if (size_bytes != nullptr) *size_bytes = global.size_bytes;
  if (global.size_bytes == 0 || call.process->addresses.Covers(global.address, global.size_bytes)) return CUDA_SUCCESS;
  Allocation allocation;
  allocation.address = global.address;
  allocation.size_bytes = global.size_bytes;
  allocation.kind = MemoryKind::kGlobal;
  allocation.context = context;
  allocation.device = context != shm::kNoContext ? call.process->contexts[context].device : 0;
  allocation.owner = owner;
  // A collision is not fatal here: the module is where it is. It only makes a host pointer ambiguous.
  if (call.process->reservations.Hold(global.address, global.size_bytes)) allocation.reserved_bytes = global.size_bytes;
  if (global.is_managed != 0) {
    if (allocation.reserved_bytes == 0)
      return RefuseUse("cuModuleGetGlobal_v2: a __managed__ variable whose address is taken here");
    if (const CUresult result = call.process->managed.Add(call.channel, global.address, global.size_bytes, context);
        result != CUDA_SUCCESS) {
      call.process->reservations.Release(global.address, global.size_bytes);
      return result;
    }
    allocation.is_managed_variable = true;
  }
  call.process->addresses.Insert(allocation);
  return CUDA_SUCCESS;
}

CUresult ListKernels(const Call& call, uint64_t owner, std::vector<ListedKernel>* kernels) {
  // As many as a reply holds at a time; `detail` says where to go on.
  for (uint32_t num_left = 1; num_left != 0;) {
    const auto first = static_cast<uint32_t>(kernels->size());
    const Reply reply = call.channel->CallStruct(shm::Op::kListKernels, shm::GetByName{owner, 0, first});
    if (reply.result != CUDA_SUCCESS) return reply.result;
    const auto count = reply.Read<uint32_t>();
    num_left = reply.Read<uint32_t>(4);
    size_t offset = 8;
    for (uint32_t i = 0; i < count && offset + 16 <= reply.payload_bytes; ++i) {
      const auto handle = reply.Read<uint64_t>(offset);
      const auto name_bytes = reply.Read<uint32_t>(offset + 8);
      offset += 16;
      if (name_bytes > reply.payload_bytes - offset) break;
      kernels->push_back({handle, std::string(reinterpret_cast<const char*>(reply.payload + offset), name_bytes)});
      offset += (name_bytes + 7) & ~size_t{7};
    }
    if (num_left != 0 && kernels->size() == first) return CUDA_ERROR_UNKNOWN;  // a name longer than a reply
  }
  // The list carries no layouts: each is looked up as if the program had asked for it by name.
  const bool is_library = shm::HandleKindOf(owner) == shm::HandleKind::kLibrary;
  for (const ListedKernel& listed : *kernels) {
    if (call.process->kernels.Find(listed.handle) != nullptr) continue;
    Kernel* kernel = nullptr;
    const shm::Op op = is_library ? shm::Op::kGetKernel : shm::Op::kGetFunction;
    if (const CUresult result = LookUpKernel(call, op, owner, listed.name.c_str(), &kernel); result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace tally::client_shim
