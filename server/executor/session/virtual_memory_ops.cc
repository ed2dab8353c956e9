// Virtual memory management: reserve, create, map, access. virtual_memory.h keeps the books.
#include <algorithm>

#include "base/log.h"
#include "server/executor/session/operations.h"

namespace tally::server {
namespace {

bool IsOffered(const DriverTable& driver) {
  return driver.cuMemAddressReserve != nullptr && driver.cuMemAddressFree != nullptr && driver.cuMemCreate != nullptr &&
         driver.cuMemRelease != nullptr && driver.cuMemMap != nullptr && driver.cuMemUnmap != nullptr &&
         driver.cuMemSetAccess != nullptr;
}

// Only memory of a device: the host's would have to be touched by the client's own processor too.
CUresult ReadProperties(ServedRequest& served, const shm::PhysicalProperties& asked, CUmemAllocationProp* properties) {
  if (asked.location_type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  constexpr auto kOffered = static_cast<uint32_t>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if ((asked.requested_types & ~kOffered) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const Devices& devices = *served.session().core.devices;
  if (!served.session().gpus.Has(asked.device)) return CUDA_ERROR_INVALID_DEVICE;
  *properties = {};
  properties->type = static_cast<CUmemAllocationType>(asked.type);
  // What leaves the program is a name of ours; other executors need the driver's own handle (driver_handle.h).
  properties->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(asked.requested_types);
  properties->location = {CU_MEM_LOCATION_TYPE_DEVICE, devices.device(static_cast<int>(asked.device))};
  properties->allocFlags.compressionType = asked.compression_type;
  properties->allocFlags.gpuDirectRDMACapable = asked.gpu_direct_rdma;
  properties->allocFlags.usage = static_cast<unsigned short>(asked.usage);
  return CUDA_SUCCESS;
}

CUresult FindPhysical(ServedRequest& served, ClientNames& names, uint64_t handle, VirtualMemory::Held** held) {
  PhysicalMemory* memory = nullptr;
  if (names.Find(shm::HandleKind::kPhysicalMemory, handle, &memory) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  *held = served.session().virtual_memory.Find(memory);
  return *held != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

uint64_t NameHeld(ClientNames& names, VirtualMemory::Held& held) {
  if (held.handle == 0) held.handle = names.NameOf(shm::HandleKind::kPhysicalMemory, held.memory.get());
  if (held.handle != 0) ++held.num_references;
  return held.handle;
}

CUresult ServeReserveAddresses(ServedRequest& served, WireReader& in, WireWriter& out) {
  shm::ReserveAddresses request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  if (!IsOffered(served.driver())) return CUDA_ERROR_NOT_SUPPORTED;
  VirtualMemory& space = served.session().virtual_memory;
  if (!space.MayReserve(request.size_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr address = 0;
  if (const CUresult r = served.driver().cuMemAddressReserve(&address, request.size_bytes, request.alignment_bytes,
                                                             request.wish, request.flags);
      r != CUDA_SUCCESS) {
    return r;
  }
  space.AddReservation(address, request.size_bytes);
  out.PutWord(address);
  return CUDA_SUCCESS;
}

CUresult ServeFreeAddresses(ServedRequest& served, WireReader& in, WireWriter&) {
  shm::AddressSpan span{};
  in.TakeStruct(&span);
  if (!in.AtEnd()) return served.Malformed();
  VirtualMemory& space = served.session().virtual_memory;
  if (!space.IsFreeReservation(span.address, span.size_bytes)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = served.driver().cuMemAddressFree(span.address, span.size_bytes);
  if (result == CUDA_SUCCESS) space.RemoveReservation(span.address);
  return result;
}

CUresult ServeCreatePhysical(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  shm::CreatePhysical request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  if (!IsOffered(served.driver())) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemAllocationProp properties{};
  if (const CUresult r = ReadProperties(served, request.properties, &properties); r != CUDA_SUCCESS) return r;
  auto charge = served.session().TakeCharge(static_cast<int>(request.properties.device), request.size_bytes);
  if (!charge) return CUDA_ERROR_OUT_OF_MEMORY;
  CUmemGenericAllocationHandle real = 0;
  CUresult made = served.driver().cuMemCreate(&real, request.size_bytes, &properties, request.flags);
  if (made == CUDA_ERROR_NOT_SUPPORTED && properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    // A driver that cannot export it: sessions of this executor share it all the same.
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    made = served.driver().cuMemCreate(&real, request.size_bytes, &properties, request.flags);
  }
  if (made != CUDA_SUCCESS) return made;
  auto memory = std::make_shared<PhysicalMemory>(served.driver(), real);
  memory->size_bytes = request.size_bytes;
  memory->properties = request.properties;
  memory->charge = std::move(*charge);
  VirtualMemory& space = served.session().virtual_memory;
  const PhysicalMemory* key = memory.get();
  out.PutWord(NameHeld(names, space.Hold(std::move(memory))));
  space.Settle(key);  // if it could not be named
  return CUDA_SUCCESS;
}

CUresult ServeReleasePhysical(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  VirtualMemory::Held* held = nullptr;
  if (const CUresult r = FindPhysical(served, names, handle, &held); r != CUDA_SUCCESS) return r;
  if (--held->num_references != 0) return CUDA_SUCCESS;
  held->handle = 0;
  names.Forget(shm::HandleKind::kPhysicalMemory, handle);
  served.session().virtual_memory.Settle(held->memory.get());
  return CUDA_SUCCESS;
}

CUresult ServeMapPhysical(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  shm::MapPhysical request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  VirtualMemory& space = served.session().virtual_memory;
  VirtualMemory::Held* held = nullptr;
  if (const CUresult r = FindPhysical(served, names, request.handle, &held); r != CUDA_SUCCESS) return r;
  if (!space.IsReserved(request.address, request.size_bytes) || request.offset_bytes > held->memory->size_bytes ||
      request.size_bytes > held->memory->size_bytes - request.offset_bytes ||
      !space.AddMapping(request.address, request.size_bytes, *held)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = served.driver().cuMemMap(request.address, request.size_bytes, request.offset_bytes,
                                                   held->memory->real, request.flags);
  if (result != CUDA_SUCCESS) {
    space.RemoveMapping(request.address);
    return result;
  }
  out.PutStruct(std::array<uint32_t, 2>{held->memory->properties.device, held->memory->properties.requested_types});
  return CUDA_SUCCESS;
}

// Holes in the span are no mistake (driver 580), as long as it is inside of one reservation. The driver does not wait
// for work that uses the mapping, and programs wait themselves. It is waited for here all the same: a stray access
// would end every session of the executor.
CUresult ServeUnmapPhysical(ServedRequest& served, StreamWaits& waits, WireReader& in, WireWriter&) {
  shm::AddressSpan span{};
  in.TakeStruct(&span);
  if (!in.AtEnd()) return served.Malformed();
  SessionState& session = served.session();
  if (!session.virtual_memory.IsReserved(span.address, span.size_bytes)) return CUDA_ERROR_INVALID_VALUE;
  const auto mappings = session.memory.MappingsWithin(span.address, span.size_bytes);
  if (!mappings) return CUDA_ERROR_INVALID_VALUE;
  if (mappings->empty()) return CUDA_SUCCESS;
  std::vector<std::shared_ptr<PhysicalMemory>> unmapped;  // given back after the wait
  for (const MemoryRange& range : *mappings) unmapped.push_back(session.virtual_memory.RemoveMapping(range.address));
  std::vector<WaitPoint> points;
  const CUresult marked = waits.MarkDevice(static_cast<int>(unmapped.front()->properties.device), &points);
  const CUresult waited = waits.AwaitPoints(&points);
  CUresult result = CUDA_SUCCESS;
  for (const MemoryRange& range : *mappings) {
    const CUresult piece = served.driver().cuMemUnmap(range.address, range.size_bytes);
    if (result == CUDA_SUCCESS) result = piece;
  }
  if (marked != CUDA_SUCCESS) return marked;
  return waited != CUDA_SUCCESS ? waited : result;
}

CUresult ServeSetAccess(ServedRequest& served, WireReader& in, WireWriter&) {
  shm::AddressSpan span{};
  in.TakeStruct(&span);
  std::vector<shm::AccessGrant> grants;
  while (in.ok() && in.remaining() != 0 && grants.size() < shm::kMaxDevices) in.TakeStruct(&grants.emplace_back());
  if (!in.AtEnd() || grants.empty()) return served.Malformed();
  SessionState& session = served.session();
  if (session.memory.Mappings(span.address, span.size_bytes).empty()) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUmemAccessDesc> descriptions;
  for (const shm::AccessGrant& grant : grants) {
    if (!session.gpus.Has(grant.device)) return CUDA_ERROR_INVALID_DEVICE;
    CUmemAccessDesc description{};
    description.location = {CU_MEM_LOCATION_TYPE_DEVICE, session.core.devices->device(static_cast<int>(grant.device))};
    description.flags = static_cast<CUmemAccess_flags>(grant.flags);
    descriptions.push_back(description);
  }
  const CUresult result =
      served.driver().cuMemSetAccess(span.address, span.size_bytes, descriptions.data(), descriptions.size());
  if (result != CUDA_SUCCESS) return result;
  for (const shm::AccessGrant& grant : grants) {
    session.memory.SetAccess(span.address, span.size_bytes, static_cast<int>(grant.device),
                             grant.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
  }
  return CUDA_SUCCESS;
}

CUresult ServeGetAccess(ServedRequest& served, WireReader& in, WireWriter& out) {
  shm::GetAccess request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  SessionState& session = served.session();
  if (!session.gpus.Has(request.device)) return CUDA_ERROR_INVALID_DEVICE;
  if (served.driver().cuMemGetAccess == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!session.virtual_memory.IsReserved(request.address, 1)) return CUDA_ERROR_INVALID_VALUE;
  const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE,
                               session.core.devices->device(static_cast<int>(request.device))};
  unsigned long long flags = 0;
  const CUresult result = served.driver().cuMemGetAccess(&flags, &location, request.address);
  if (result == CUDA_SUCCESS) out.PutWord(flags);
  return result;
}

CUresult ServeGranularity(ServedRequest& served, WireReader& in, WireWriter& out) {
  shm::PhysicalProperties asked{};
  in.TakeStruct(&asked);
  const uint64_t option = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  if (served.driver().cuMemGetAllocationGranularity == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemAllocationProp properties{};
  if (const CUresult r = ReadProperties(served, asked, &properties); r != CUDA_SUCCESS) return r;
  size_t granularity = 0;
  const CUresult result = served.driver().cuMemGetAllocationGranularity(
      &granularity, &properties, static_cast<CUmemAllocationGranularity_flags>(option));
  if (result == CUDA_SUCCESS) out.PutWord(granularity);
  return result;
}

CUresult ServeDescribePhysical(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  VirtualMemory::Held* held = nullptr;
  if (const CUresult r = FindPhysical(served, names, handle, &held); r != CUDA_SUCCESS) return r;
  out.PutStruct(held->memory->properties);
  return CUDA_SUCCESS;
}

CUresult ServeRetainPhysical(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  const uint64_t address = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  VirtualMemory& space = served.session().virtual_memory;
  const std::shared_ptr<PhysicalMemory> memory = space.MappedAt(address);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  out.PutWord(NameHeld(names, *space.Find(memory.get())));
  return CUDA_SUCCESS;
}

}  // namespace tally::server
