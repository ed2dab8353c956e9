#include "server/executor/mirror/mirror_memory.h"

#include <utility>

namespace tally::server {
namespace {

bool IsInside(uint64_t offset, uint64_t num_bytes, uint64_t limit) {
  return offset <= limit && num_bytes <= limit - offset;
}

CUmemAllocationProp PropertiesOf(int ordinal) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {ordinal}};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

}  // namespace

MirrorMemory::~MirrorMemory() {
  while (!allocations_.empty()) Release(allocations_.begin()->first);
}

MirrorMemory::Allocation* MirrorMemory::Find(uint32_t number) {
  const auto found = allocations_.find(number);
  return found == allocations_.end() ? nullptr : &found->second;
}

CUresult MirrorMemory::Reserve(const shm::MirrorCommand& command) {
  if (Find(command.allocation) != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!arena_.Holds(command.address, command.num_bytes)) {
    CUdeviceptr got = 0;
    const CUresult result = driver_.cuMemAddressReserve(&got, command.num_bytes, 0, command.address, 0);
    if (result != CUDA_SUCCESS) return result;
    if (got != command.address) {
      driver_.cuMemAddressFree(got, command.num_bytes);
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  allocations_[command.allocation] = {
      .num_bytes = command.num_bytes, .own = {.base = command.address, .pieces = {}}, .others = {}};
  return CUDA_SUCCESS;
}

void MirrorMemory::Clear(Range& range, uint64_t num_bytes) {
  for (const auto& [offset, piece] : range.pieces) {
    driver_.cuMemUnmap(range.base + offset, piece.num_bytes);
    driver_.cuMemRelease(piece.memory);
  }
  if (arena_.Holds(range.base, num_bytes) || apart_.Give(range.base, num_bytes)) return;
  driver_.cuMemAddressFree(range.base, num_bytes);
}

CUresult MirrorMemory::Release(uint32_t number) {
  Allocation* const allocation = Find(number);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Clear(allocation->own, allocation->num_bytes);
  for (auto& [gpu, range] : allocation->others) Clear(range, allocation->num_bytes);
  allocations_.erase(number);
  return CUDA_SUCCESS;
}

CUresult MirrorMemory::MapPiece(Range& range, uint64_t offset, uint64_t num_bytes,
                                CUmemGenericAllocationHandle memory) {
  const CUdeviceptr address = range.base + offset;
  CUresult result = driver_.cuMemMap(address, num_bytes, 0, memory, 0);
  if (result == CUDA_SUCCESS) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {ordinal_}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    result = driver_.cuMemSetAccess(address, num_bytes, &access, 1);
    if (result != CUDA_SUCCESS) driver_.cuMemUnmap(address, num_bytes);
  }
  if (result == CUDA_SUCCESS) {
    range.pieces[offset] = {.num_bytes = num_bytes, .memory = memory};
  } else {
    driver_.cuMemRelease(memory);
  }
  return result;
}

CUresult MirrorMemory::Import(int fd, CUmemGenericAllocationHandle* memory) const {
  void* const as_pointer = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
  return driver_.cuMemImportFromShareableHandle(memory, as_pointer, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

CUresult MirrorMemory::MapShared(const shm::MirrorCommand& command, int fd) {
  Allocation* const allocation = Find(command.allocation);
  if (allocation == nullptr || !IsInside(command.offset, command.num_bytes, allocation->num_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUmemGenericAllocationHandle memory = 0;
  if (const CUresult r = Import(fd, &memory); r != CUDA_SUCCESS) return r;
  return MapPiece(allocation->own, command.offset, command.num_bytes, memory);
}

CUresult MirrorMemory::MapOwn(const shm::MirrorCommand& command, UniqueFd* exported) {
  Allocation* const allocation = Find(command.allocation);
  if (allocation == nullptr || !IsInside(command.offset, command.num_bytes, allocation->num_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUmemAllocationProp properties = PropertiesOf(ordinal_);
  CUmemGenericAllocationHandle memory = 0;
  if (const CUresult r = driver_.cuMemCreate(&memory, command.num_bytes, &properties, 0); r != CUDA_SUCCESS) return r;
  int fd = -1;
  const CUresult result =
      driver_.cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (result != CUDA_SUCCESS) {
    driver_.cuMemRelease(memory);
    return result;
  }
  *exported = UniqueFd(fd);
  return MapPiece(allocation->own, command.offset, command.num_bytes, memory);
}

CUresult MirrorMemory::MapOther(const shm::MirrorCommand& command, int fd) {
  Allocation* const allocation = Find(command.allocation);
  if (allocation == nullptr || !IsInside(command.offset, command.num_bytes, allocation->num_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUmemGenericAllocationHandle memory = 0;
  if (const CUresult r = Import(fd, &memory); r != CUDA_SUCCESS) return r;
  Range& range = allocation->others[command.gpu];
  if (range.base == 0) {
    range.base = apart_.Take(allocation->num_bytes).value_or(0);
    CUresult reserved = CUDA_SUCCESS;
    if (range.base == 0) reserved = driver_.cuMemAddressReserve(&range.base, allocation->num_bytes, 0, 0, 0);
    if (reserved != CUDA_SUCCESS) {
      allocation->others.erase(command.gpu);
      driver_.cuMemRelease(memory);
      return reserved;
    }
  }
  return MapPiece(range, command.offset, command.num_bytes, memory);
}

CUresult MirrorMemory::Unmap(const shm::MirrorCommand& command) {
  Allocation* const allocation = Find(command.allocation);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Range* range = &allocation->own;
  if (command.gpu != shm::kMirrorSelf) {
    const auto other = allocation->others.find(command.gpu);
    if (other == allocation->others.end()) return CUDA_ERROR_INVALID_VALUE;
    range = &other->second;
  }
  const auto piece = range->pieces.find(command.offset);
  if (piece == range->pieces.end() || piece->second.num_bytes != command.num_bytes) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = driver_.cuMemUnmap(range->base + command.offset, command.num_bytes);
  if (result != CUDA_SUCCESS) return result;
  driver_.cuMemRelease(piece->second.memory);
  range->pieces.erase(piece);
  return CUDA_SUCCESS;
}

const MirrorMemory::Allocation* MirrorMemory::FindBox(const shm::MirrorCommand& command) const {
  const auto found = allocations_.find(command.allocation);
  if (found == allocations_.end()) return nullptr;
  return IsInside(command.offset, BoxExtent(command), found->second.num_bytes) ? &found->second : nullptr;
}

std::optional<CUdeviceptr> MirrorMemory::InOwn(const shm::MirrorCommand& command) const {
  const Allocation* const allocation = FindBox(command);
  if (allocation == nullptr) return std::nullopt;
  return allocation->own.base + command.offset;
}

std::optional<CUdeviceptr> MirrorMemory::InOther(const shm::MirrorCommand& command) const {
  const Allocation* const allocation = FindBox(command);
  if (allocation == nullptr) return std::nullopt;
  const auto range = allocation->others.find(command.gpu);
  if (range == allocation->others.end()) return std::nullopt;
  return range->second.base + command.offset;
}

}  // namespace tally::server
