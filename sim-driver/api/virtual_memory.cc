#include "sim-driver/api/virtual_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/mapped_region.h"
#include "sim-driver/api/device.h"
#include "sim-driver/api/error.h"
#include "sim-driver/api/handle_table.h"
#include "sim-driver/api/live_objects.h"
#include "sim-driver/api/memory_map.h"

namespace tally::sim_driver {
namespace {

// Guards all three tables; VMM calls are rare.
struct State {
  std::mutex mutex;
  std::unordered_map<CUmemGenericAllocationHandle, std::shared_ptr<PhysicalMemory>> physical;
  std::unordered_map<uint64_t, std::shared_ptr<PhysicalMemory>> mapped;  // by address

  State() {
    RegisterLive("physical-memory", [this] {
      const std::lock_guard lock(mutex);
      return physical.size();
    });
    RegisterLive("mapped-memory", [this] {
      const std::lock_guard lock(mutex);
      return mapped.size();
    });
  }
};
State& GetState() {
  static auto& state = *new State();
  return state;
}

std::shared_ptr<PhysicalMemory> FindLocked(State& state, CUmemGenericAllocationHandle handle) {
  const auto found = state.physical.find(handle);
  Require(found != state.physical.end(), CUDA_ERROR_INVALID_VALUE);
  return found->second;
}

CUmemGenericAllocationHandle Enter(std::shared_ptr<PhysicalMemory> memory) {
  memory->handle = NextHandleValue();
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  const CUmemGenericAllocationHandle handle = memory->handle;
  state.physical.emplace(handle, std::move(memory));
  return handle;
}

// Behind the bytes of each physical memory, in its file: what an importing process must know.
struct Label {
  uint64_t magic;
  uint64_t num_bytes;
  uint64_t device;  // ordinal
};
constexpr uint64_t kLabelMagic = 0x6c6162656c76'6d6d;

bool IsWhole(uint64_t value) { return value % MemoryMap::kPageGranularity == 0; }

// The mappings that fill exactly [address, address+num_bytes). Fails with INVALID_VALUE when they do not.
std::vector<MemoryRegion> WholeMappings(uint64_t address, uint64_t num_bytes) {
  Require(num_bytes != 0 && address + num_bytes > address, CUDA_ERROR_INVALID_VALUE);
  std::vector<MemoryRegion> mapped = MemoryMap::Get().MappedWithin(address, address + num_bytes);
  uint64_t next = address;
  for (const MemoryRegion& region : mapped) {
    Require(region.kind == MemoryKind::kMapped && region.base == next, CUDA_ERROR_INVALID_VALUE);
    next = region.end();
  }
  Require(next == address + num_bytes, CUDA_ERROR_INVALID_VALUE);
  return mapped;
}

// The mappings in [address, address+num_bytes), which must be part of one reservation and cut none of them.
std::vector<MemoryRegion> MappingsInReservation(uint64_t address, uint64_t num_bytes) {
  Require(num_bytes != 0 && MemoryMap::Get().IsReserved(address, num_bytes), CUDA_ERROR_INVALID_VALUE);
  const uint64_t end = address + num_bytes;
  std::vector<MemoryRegion> mapped = MemoryMap::Get().MappedWithin(address, end);
  const auto first = MemoryMap::Get().Find(address);
  Require(first && (first->kind == MemoryKind::kReserved || first->base == address) &&
              (mapped.empty() || mapped.back().end() <= end),
          CUDA_ERROR_INVALID_VALUE);
  return mapped;
}

}  // namespace

PhysicalMemory::~PhysicalMemory() {
  if (!is_imported) DeviceAt(device).Return(num_bytes);
}

void CheckAllocationProperties(const CUmemAllocationProp& properties) {
  Require(properties.type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
  // Host memory and other kinds of handles: attributes say that this device has neither.
  Require(properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
  Require(properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ||
              properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
          CUDA_ERROR_NOT_SUPPORTED);
  DeviceAt(properties.location.id);
}

CUmemGenericAllocationHandle CreatePhysical(uint64_t num_bytes, const CUmemAllocationProp& properties) {
  CheckAllocationProperties(properties);
  Require(num_bytes != 0 && IsWhole(num_bytes), CUDA_ERROR_INVALID_VALUE);
  Device& device = DeviceAt(properties.location.id);
  Require(num_bytes <= device.total_bytes() && device.Take(num_bytes), CUDA_ERROR_OUT_OF_MEMORY);
  auto memory = std::make_shared<PhysicalMemory>();  // from here on its destructor gives the budget back
  memory->num_bytes = num_bytes;
  memory->device = device.ordinal();
  memory->properties = properties;
  auto fd = CreateSealedMemfd("tally-sim-vmm", num_bytes + sizeof(Label), /*reserved_bytes=*/1);
  Require(fd.has_value(), CUDA_ERROR_OUT_OF_MEMORY);
  memory->fd = std::move(*fd);
  const Label label{.magic = kLabelMagic, .num_bytes = num_bytes, .device = static_cast<uint64_t>(memory->device)};
  Require(pwrite(memory->fd.get(), &label, sizeof label, static_cast<off_t>(num_bytes)) == sizeof label,
          CUDA_ERROR_OUT_OF_MEMORY);
  return Enter(std::move(memory));
}

int ExportPhysical(CUmemGenericAllocationHandle handle) {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  const auto memory = FindLocked(state, handle);
  Require(memory->properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
          CUDA_ERROR_INVALID_VALUE);
  const int fd = fcntl(memory->fd.get(), F_DUPFD_CLOEXEC, 0);
  Require(fd >= 0, CUDA_ERROR_OPERATING_SYSTEM);
  return fd;
}

// The label is whatever the descriptor's maker wrote: read once and checked against what the file really is.
CUmemGenericAllocationHandle ImportPhysical(int fd) {
  struct stat file {};
  Require(CheckSealedMemfd(fd, sizeof(Label) + 1).ok() && fstat(fd, &file) == 0, CUDA_ERROR_INVALID_VALUE);
  const uint64_t num_bytes = static_cast<uint64_t>(file.st_size) - sizeof(Label);
  Label label;
  Require(pread(fd, &label, sizeof label, static_cast<off_t>(num_bytes)) == sizeof label &&
              label.magic == kLabelMagic && label.num_bytes == num_bytes && IsWhole(num_bytes),
          CUDA_ERROR_INVALID_VALUE);
  Require(label.device < static_cast<uint64_t>(NumDevices()), CUDA_ERROR_INVALID_DEVICE);
  auto memory = std::make_shared<PhysicalMemory>();
  memory->is_imported = true;
  memory->num_bytes = num_bytes;
  memory->device = static_cast<int>(label.device);
  memory->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {memory->device}};
  memory->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  memory->fd = UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  Require(memory->fd.valid(), CUDA_ERROR_OPERATING_SYSTEM);
  return Enter(std::move(memory));
}

void ReleasePhysical(CUmemGenericAllocationHandle handle) {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  const auto memory = FindLocked(state, handle);
  if (--memory->num_references == 0) state.physical.erase(handle);
}

CUmemAllocationProp PropertiesOf(CUmemGenericAllocationHandle handle) {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  return FindLocked(state, handle)->properties;
}

CUmemGenericAllocationHandle RetainPhysicalAt(uint64_t address) {
  const auto region = MemoryMap::Get().Find(address);
  Require(region && region->kind == MemoryKind::kMapped, CUDA_ERROR_INVALID_VALUE);
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  const auto found = state.mapped.find(region->base);
  Require(found != state.mapped.end(), CUDA_ERROR_INVALID_VALUE);
  PhysicalMemory& memory = *found->second;
  ++memory.num_references;
  state.physical.emplace(memory.handle, found->second);
  return memory.handle;
}

uint64_t ReserveAddresses(uint64_t num_bytes, uint64_t alignment, uint64_t hint) {
  Require(num_bytes != 0 && IsWhole(num_bytes), CUDA_ERROR_INVALID_VALUE);
  Require((alignment & (alignment - 1)) == 0, CUDA_ERROR_INVALID_VALUE);
  MemoryRegion shape;
  shape.num_bytes = num_bytes;
  shape.kind = MemoryKind::kReserved;
  shape.base = hint;
  if (IsWhole(hint) && (alignment == 0 || hint % alignment == 0) && MemoryMap::Get().AllocateAt(shape)) return hint;
  const auto base = MemoryMap::Get().Allocate(shape, alignment);
  Require(base.has_value(), CUDA_ERROR_OUT_OF_MEMORY);
  return *base;
}

void FreeAddresses(uint64_t base, uint64_t num_bytes) {
  const auto region = MemoryMap::Get().Find(base);
  Require(region && region->kind == MemoryKind::kReserved && region->base == base && region->num_bytes == num_bytes &&
              MemoryMap::Get().MappedWithin(base, base + num_bytes).empty(),
          CUDA_ERROR_INVALID_VALUE);
  MemoryMap::Get().Remove(base);
}

void MapAt(uint64_t address, uint64_t num_bytes, uint64_t offset, CUmemGenericAllocationHandle handle) {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  const auto memory = FindLocked(state, handle);
  Require(num_bytes != 0 && IsWhole(num_bytes) && IsWhole(address) && offset == 0 && num_bytes == memory->num_bytes &&
              address + num_bytes > address,
          CUDA_ERROR_INVALID_VALUE);
  MemoryRegion region;
  region.base = address;
  region.num_bytes = num_bytes;
  region.kind = MemoryKind::kMapped;
  region.device = memory->device;
  region.buffer_id = MemoryMap::NextBufferId();
  region.readable_by = region.writable_by = 0;  // until cuMemSetAccess
  Require(MemoryMap::Get().MapPhysical(region, memory->fd.get(), 0), CUDA_ERROR_INVALID_VALUE);
  state.mapped[address] = memory;
}

// Like driver 580: what is not mapped is passed over.
void UnmapAt(uint64_t address, uint64_t num_bytes) {
  const std::vector<MemoryRegion> mapped = MappingsInReservation(address, num_bytes);
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  for (const MemoryRegion& region : mapped) {
    Require(MemoryMap::Get().UnmapPhysical(region.base, MemoryKind::kMapped), CUDA_ERROR_INVALID_VALUE);
    state.mapped.erase(region.base);
  }
}

void SetAccess(uint64_t address, uint64_t num_bytes, int device, CUmemAccess_flags access) {
  Require(access == CU_MEM_ACCESS_FLAGS_PROT_NONE || access == CU_MEM_ACCESS_FLAGS_PROT_READ ||
              access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
          CUDA_ERROR_INVALID_VALUE);
  for (const MemoryRegion& region : WholeMappings(address, num_bytes)) {
    MemoryMap::Get().Update(region.base, [access, bit = 1u << device](MemoryRegion& changed) {
      const auto set = [bit](uint32_t devices, bool may) { return may ? devices | bit : devices & ~bit; };
      changed.readable_by = set(changed.readable_by, access != CU_MEM_ACCESS_FLAGS_PROT_NONE);
      changed.writable_by = set(changed.writable_by, access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    });
  }
}

uint64_t HandleTypesAt(uint64_t base) {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  const auto found = state.mapped.find(base);
  return found == state.mapped.end() ? 0 : static_cast<uint64_t>(found->second->properties.requestedHandleTypes);
}

CUmemAccess_flags AccessAt(uint64_t address, int device) {
  const auto region = MemoryMap::Get().Find(address);
  Require(region.has_value(), CUDA_ERROR_INVALID_VALUE);
  if (region->kind == MemoryKind::kReserved || !region->IsReadableBy(device)) return CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return region->IsWritableBy(device) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
}

}  // namespace tally::sim_driver
