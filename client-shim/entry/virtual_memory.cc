// CUDA manual: Virtual Memory Management. Reserved addresses are the driver's own, at the same place here, held without
// access; what is mapped into them is entered in the address map piece by piece.
#include <cstring>
#include <vector>

#include "client-shim/state/process.h"
#include "client-shim/state/refusals.h"
#include "client-shim/state/streams.h"
#include "proto/driver/generated/client_calls.h"
#include "proto/shm/records_memory_abi.h"

namespace tally::client_shim::entry {
namespace {

// How often other addresses are asked for when those offered are taken in this process. Each try keeps the last, so
// that the driver has to find others.
constexpr int kMaxTries = 8;

constexpr size_t kHostGranularity = size_t{2} << 20;

bool IsHost(CUmemLocationType type) {
  return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

CUresult Pack(const Process& process, const CUmemAllocationProp* prop, shm::PhysicalProperties* packed) {
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (IsHost(prop->location.type)) return RefuseUse("cuMemCreate: memory of the host");
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (!process.IsDevice(prop->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  if ((prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
    return RefuseUse("cuMemCreate: handles other than POSIX file descriptors");
  *packed = {};
  packed->type = prop->type;
  packed->requested_types = prop->requestedHandleTypes;
  packed->location_type = prop->location.type;
  packed->device = static_cast<uint32_t>(process.server_ordinal(prop->location.id));
  packed->usage = prop->allocFlags.usage;
  packed->compression_type = prop->allocFlags.compressionType;
  packed->gpu_direct_rdma = prop->allocFlags.gpuDirectRDMACapable;
  return CUDA_SUCCESS;
}

// Locations that may be given access: devices. Access by the host's processor is not offered.
CUresult OrdinalOf(const Process& process, const CUmemLocation& location, uint32_t* ordinal) {
  if (IsHost(location.type)) return RefuseUse("cuMemSetAccess: access for the host");
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (!process.IsDevice(location.id)) return CUDA_ERROR_INVALID_DEVICE;
  *ordinal = static_cast<uint32_t>(process.server_ordinal(location.id));
  return CUDA_SUCCESS;
}

// Takes the mappings of a span out of the address map: none of them, and false, if one lies across its end or there is
// something else. Holes are let be.
bool TakeMappings(Process* process, uint64_t address, uint64_t size_bytes, std::vector<Allocation>* taken) {
  while (const auto found = process->addresses.FindOverlap(address, size_bytes)) {
    const bool fits = found->kind == MemoryKind::kMapped && found->address >= address &&
                      found->size_bytes <= size_bytes - (found->address - address);
    const auto removed = fits ? process->addresses.Remove(found->address) : std::nullopt;
    if (!removed) {
      for (const Allocation& mapping : *taken) process->addresses.Insert(mapping);
      return false;
    }
    taken->push_back(*removed);
  }
  return true;
}

}  // namespace

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (ptr == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<uint64_t> collided;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (int attempt = 0; attempt < kMaxTries; ++attempt) {
    const Reply reply =
        call.channel->CallStruct(shm::Op::kReserveAddresses, shm::ReserveAddresses{size, alignment, addr, flags});
    result = reply.result;
    if (result != CUDA_SUCCESS) break;
    const auto address = reply.Read<uint64_t>();
    if (call.process->reservations.HoldWhole(address, size)) {
      *ptr = address;
      break;
    }
    collided.push_back(address);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (const uint64_t address : collided) {
    call.channel->CallStruct(shm::Op::kFreeAddresses, shm::AddressSpan{address, size});
  }
  return result;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  // Held until the executor has freed them. Should another thread be given them at this moment, it finds them taken and
  // asks for others.
  const Reply reply = call.channel->CallStruct(shm::Op::kFreeAddresses, shm::AddressSpan{ptr, size});
  if (reply.result == CUDA_SUCCESS) call.process->reservations.ReleaseWhole(ptr, size);
  return reply.result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (handle == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  shm::CreatePhysical request{{}, size, flags};
  if (const CUresult result = Pack(*call.process, prop, &request.properties); result != CUDA_SUCCESS) return result;
  const Reply reply = call.channel->CallStruct(shm::Op::kCreatePhysical, request);
  if (reply.result == CUDA_SUCCESS) *handle = reply.Read<uint64_t>();
  return reply.result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  return call.channel->CallStruct(shm::Op::kReleasePhysical, uint64_t{handle}).result;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  const Reply reply =
      call.channel->CallStruct(shm::Op::kMapPhysical, shm::MapPhysical{ptr, size, offset, handle, flags});
  if (reply.result != CUDA_SUCCESS) return reply.result;
  Allocation mapping;
  mapping.address = ptr;
  mapping.size_bytes = size;
  mapping.kind = MemoryKind::kMapped;
  mapping.context = shm::kNoContext;
  mapping.device = call.process->client_ordinal(reply.Read<uint32_t>());
  mapping.handle_types = reply.Read<uint32_t>(4);
  call.process->addresses.Insert(mapping);
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  // Out of the map first: once the executor has unmapped it, another thread may map something else there.
  std::vector<Allocation> taken;
  if (size > UINT64_MAX - ptr || !TakeMappings(call.process, ptr, size, &taken)) return CUDA_ERROR_INVALID_VALUE;
  const Reply reply = call.channel->CallStruct(shm::Op::kUnmapPhysical, shm::AddressSpan{ptr, size});
  if (reply.result == CUDA_SUCCESS) return FinishWait(call.channel);
  for (const Allocation& mapping : taken) call.process->addresses.Insert(mapping);
  return reply.result;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (desc == nullptr || count == 0 || count > shm::kMaxDevices) return CUDA_ERROR_INVALID_VALUE;
  shm::AccessGrant grants[shm::kMaxDevices];
  for (size_t i = 0; i < count; ++i) {
    if (const CUresult result = OrdinalOf(*call.process, desc[i].location, &grants[i].device); result != CUDA_SUCCESS)
      return result;
    grants[i].flags = desc[i].flags;
  }
  const shm::AddressSpan span{ptr, size};
  const size_t grant_bytes = count * sizeof(grants[0]);
  std::byte* room = call.channel->Begin(shm::Op::kSetAccess, static_cast<uint32_t>(sizeof(span) + grant_bytes));
  if (room == nullptr) return call.channel->failure();
  std::memcpy(room, &span, sizeof(span));
  std::memcpy(room + sizeof(span), grants, grant_bytes);
  return call.channel->Call().result;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  shm::GetAccess request{ptr, 0, 0};
  if (const CUresult result = OrdinalOf(*call.process, *location, &request.device); result != CUDA_SUCCESS)
    return result;
  const Reply reply = call.channel->CallStruct(shm::Op::kGetAccess, request);
  if (reply.result == CUDA_SUCCESS) *flags = reply.Read<uint64_t>();
  return reply.result;
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (granularity == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Of host memory too, although none can be had: NCCL takes an error here for its own end, one from cuMemCreate not.
  if (prop != nullptr && IsHost(prop->location.type)) {
    *granularity = kHostGranularity;
    return CUDA_SUCCESS;
  }
  struct {
    shm::PhysicalProperties properties;
    uint64_t option;
  } request{{}, static_cast<uint64_t>(option)};
  if (const CUresult result = Pack(*call.process, prop, &request.properties); result != CUDA_SUCCESS) return result;
  const Reply reply = call.channel->CallStruct(shm::Op::kGranularity, request);
  if (reply.result == CUDA_SUCCESS) *granularity = reply.Read<uint64_t>();
  return reply.result;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Reply reply = call.channel->CallStruct(shm::Op::kDescribePhysical, uint64_t{handle});
  if (reply.result != CUDA_SUCCESS) return reply.result;
  const auto packed = reply.Read<shm::PhysicalProperties>();
  *prop = {};
  prop->type = static_cast<CUmemAllocationType>(packed.type);
  prop->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(packed.requested_types);
  prop->location.type = static_cast<CUmemLocationType>(packed.location_type);
  prop->location.id = call.process->client_ordinal(packed.device);
  prop->allocFlags.usage = static_cast<unsigned short>(packed.usage);
  prop->allocFlags.compressionType = packed.compression_type;
  prop->allocFlags.gpuDirectRDMACapable = packed.gpu_direct_rdma;
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Reply reply = call.channel->CallStruct(shm::Op::kRetainPhysical, reinterpret_cast<uint64_t>(addr));
  if (reply.result == CUDA_SUCCESS) *handle = reply.Read<uint64_t>();
  return reply.result;
}

}  // namespace tally::client_shim::entry
