#include "sim-driver/api/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "sim-driver/api/device.h"
#include "sim-driver/api/driver_waits.h"
#include "sim-driver/api/error.h"
#include "sim-driver/api/ipc_memory.h"
#include "sim-driver/api/pool.h"
#include "sim-driver/api/virtual_memory.h"

namespace tally::sim_driver {
namespace {

constexpr uint64_t kPage = 4096;
// More pinned memory than this in one piece is a mistake of the caller, not a wish.
constexpr uint64_t kMaxHostBytes = uint64_t{1} << 40;

bool IsBudgeted(const MemoryRegion& region) {
  return region.kind == MemoryKind::kDevice || region.kind == MemoryKind::kManaged;
}

}  // namespace

uint64_t AccountedBytes(uint64_t num_bytes) {
  return (num_bytes + MemoryMap::kGranularity - 1) / MemoryMap::kGranularity * MemoryMap::kGranularity;
}

uint64_t AcquireMemory(Context& context, MemoryRegion shape, uint64_t alignment) {
  Device& device = context.device();
  Require(shape.num_bytes != 0, CUDA_ERROR_INVALID_VALUE);
  Require(shape.num_bytes <= device.total_bytes() && device.Take(AccountedBytes(shape.num_bytes)),
          CUDA_ERROR_OUT_OF_MEMORY);
  shape.device = device.ordinal();
  shape.context = context.id();
  const auto base = MemoryMap::Get().Allocate(
      shape, alignment > MemoryMap::kGranularity ? alignment : (alignment == 0 ? 0 : MemoryMap::kGranularity));
  if (!base) {
    device.Return(AccountedBytes(shape.num_bytes));
    Fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  return *base;
}

bool ReleaseMemory(uint64_t base) {
  const auto region = MemoryMap::Get().Remove(base);
  if (!region) return false;
  if (region->is_exported) ForgetExport(base);
  if (IsBudgeted(*region)) DeviceAt(region->device).Return(AccountedBytes(region->num_bytes));
  if (region->pool != 0) NotePoolRelease(region->pool, AccountedBytes(region->num_bytes));
  return true;
}

void FreeMemoryOf(const Context& context) {
  for (const MemoryRegion& region : MemoryMap::Get().RemoveContext(context.id())) {
    if (region.is_exported) ForgetExport(region.base);
    if (IsBudgeted(region)) DeviceAt(region.device).Return(AccountedBytes(region.num_bytes));
    if (region.pool != 0) NotePoolRelease(region.pool, AccountedBytes(region.num_bytes));
  }
}

std::shared_ptr<void> AcquireGraphMemory(Context& context, uint64_t num_bytes, CUdeviceptr& address) {
  MemoryRegion shape;
  shape.num_bytes = num_bytes;
  shape.is_graph_owned = true;
  address = AcquireMemory(context, shape, 0);
  const int ordinal = context.device().ordinal();
  std::atomic<uint64_t>& high = GraphMemoryHighBytes(ordinal);
  high.store(std::max(high.load(), GraphMemoryBytes(ordinal)));
  return {reinterpret_cast<void*>(address), [](void* base) { ReleaseMemory(reinterpret_cast<uint64_t>(base)); }};
}

uint64_t GraphMemoryBytes(int ordinal) {
  uint64_t num_bytes = 0;
  for (const MemoryRegion& region : MemoryMap::Get().MappedWithin(0, UINT64_MAX)) {
    if (region.is_graph_owned && region.device == ordinal) num_bytes += AccountedBytes(region.num_bytes);
  }
  return num_bytes;
}

std::atomic<uint64_t>& GraphMemoryHighBytes(int ordinal) {
  constexpr size_t kMaxDevices = 64;
  static std::array<std::atomic<uint64_t>, kMaxDevices> high{};
  return high[static_cast<size_t>(ordinal) % kMaxDevices];
}

void* AllocateHost(Context& context, uint64_t num_bytes, unsigned flags) {
  constexpr unsigned kKnown = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  Require(num_bytes != 0 && (flags & ~kKnown) == 0, CUDA_ERROR_INVALID_VALUE);
  Require(num_bytes <= kMaxHostBytes, CUDA_ERROR_OUT_OF_MEMORY);
  const uint64_t mapped = (num_bytes + kPage - 1) / kPage * kPage;
  void* const pointer = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Require(pointer != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  MemoryRegion region;
  region.base = reinterpret_cast<uint64_t>(pointer);
  region.num_bytes = num_bytes;
  region.kind = MemoryKind::kPinned;
  region.device = context.device().ordinal();
  region.context = context.id();
  region.buffer_id = MemoryMap::NextBufferId();
  // With unified addressing every pinned allocation is mapped and portable, whatever was asked.
  region.flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
  if (!MemoryMap::Get().Insert(region)) {
    munmap(pointer, mapped);
    Fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  return pointer;
}

void FreeHost(Context& context, void* pointer) {
  const auto region = MemoryMap::Get().Find(reinterpret_cast<uint64_t>(pointer));
  Require(region && region->kind == MemoryKind::kPinned && region->base == reinterpret_cast<uint64_t>(pointer),
          CUDA_ERROR_INVALID_VALUE);
  AwaitContext(context);
  Require(MemoryMap::Get().Remove(region->base).has_value(), CUDA_ERROR_INVALID_VALUE);
}

void RegisterHost(Context& context, void* pointer, uint64_t num_bytes, unsigned flags) {
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                              CU_MEMHOSTREGISTER_READ_ONLY;
  const auto base = reinterpret_cast<uint64_t>(pointer);
  Require(pointer != nullptr && num_bytes != 0 && base + num_bytes > base && (flags & ~kKnown) == 0,
          CUDA_ERROR_INVALID_VALUE);
  Require((flags & CU_MEMHOSTREGISTER_IOMEMORY) == 0, CUDA_ERROR_NOT_SUPPORTED);
  // Nothing may lie behind the addresses: that would be found by a crash at the first copy.
  const uint64_t first_page = base / kPage * kPage;
  Require(num_bytes <= kMaxHostBytes, CUDA_ERROR_INVALID_VALUE);
  Require(msync(reinterpret_cast<void*>(first_page), base + num_bytes - first_page, MS_ASYNC) == 0,
          CUDA_ERROR_INVALID_VALUE);
  MemoryRegion region;
  region.base = base;
  region.num_bytes = num_bytes;
  region.kind = MemoryKind::kRegistered;
  if ((flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0) region.writable_by = 0;
  region.device = context.device().ordinal();
  region.context = context.id();
  region.buffer_id = MemoryMap::NextBufferId();
  region.flags = flags;
  Require(MemoryMap::Get().Insert(region), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

void UnregisterHost(Context& context, void* pointer) {
  const auto base = reinterpret_cast<uint64_t>(pointer);
  Require(pointer != nullptr, CUDA_ERROR_INVALID_VALUE);
  const auto region = MemoryMap::Get().Find(base);
  Require(region && region->kind == MemoryKind::kRegistered && region->base == base,
          CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  context.Synchronize();
  Require(MemoryMap::Get().Remove(base).has_value(), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

void FreeDevice(Context& context, uint64_t base) {
  const auto region = MemoryMap::Get().Find(base);
  Require(region && region->base == base && !region->is_module_owned &&
              (region->kind == MemoryKind::kDevice || region->kind == MemoryKind::kManaged),
          CUDA_ERROR_INVALID_VALUE);
  AwaitContext(context);
  RequireSuccess(context.error());
  if (region->is_graph_owned) return;  // the graph gives it back: its next launch uses the same address
  Require(ReleaseMemory(base), CUDA_ERROR_INVALID_VALUE);
}

CUresult PointerAttribute(void* out, CUpointer_attribute attribute, uint64_t pointer) {
  const auto region = MemoryMap::Get().Find(pointer);
  const auto put = [out](auto value) {
    std::memcpy(out, &value, sizeof value);
    return CUDA_SUCCESS;
  };
  if (!region) {
    // What native drivers say about memory that they do not know.
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPED) return put(0);
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool has_host_address = region->IsHost() || region->kind == MemoryKind::kManaged;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
      const ContextPtr owner = FindContextById(region->context);
      return put(owner ? owner->handle() : nullptr);
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(static_cast<unsigned>(region->IsHost() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return region->kind == MemoryKind::kReserved ? CUDA_ERROR_INVALID_VALUE : put(static_cast<CUdeviceptr>(pointer));
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!has_host_address) return CUDA_ERROR_INVALID_VALUE;
      return put(reinterpret_cast<void*>(pointer));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put(static_cast<unsigned>(region->synchronizes));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put(static_cast<unsigned long long>(region->buffer_id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(static_cast<unsigned>(region->kind == MemoryKind::kManaged));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(region->device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put(static_cast<unsigned>(IsExportable(*region)));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put(0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(static_cast<CUdeviceptr>(region->base));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put(static_cast<size_t>(region->num_bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(static_cast<int>(region->kind != MemoryKind::kReserved));
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(region->kind == MemoryKind::kMapped ? HandleTypesAt(region->base) : uint64_t{CU_MEM_HANDLE_TYPE_NONE});
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: {
      const ContextPtr current = CurrentContextOrNull();
      const int device = current ? current->device().ordinal() : region->device;
      return put(static_cast<unsigned>(!region->IsReadableBy(device)  ? 0
                                       : region->IsWritableBy(device) ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                                                                      : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ));
    }
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(reinterpret_cast<CUmemoryPool>(region->pool));
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace tally::sim_driver
