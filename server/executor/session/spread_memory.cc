#include "server/executor/session/spread_memory.h"

#include <cstdlib>
#include <utility>

namespace tally::server {
namespace {

uint64_t LeastBytes() {
  const char* const asked = std::getenv("TALLY_SPREAD_LEAST_BYTES");
  return asked != nullptr ? std::strtoull(asked, nullptr, 10) : SpreadMemory::kLeastBytes;
}

CUmemAllocationProp PropertiesFor(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

}  // namespace

SpreadMemory::SpreadMemory(const DriverTable& driver, AddressArena& arena, std::vector<int> ordinals)
    : driver_(driver), arena_(arena), ordinals_(std::move(ordinals)), least_bytes_(LeastBytes()) {}

SpreadMemory::~SpreadMemory() {
  for (const auto& [address, held] : held_) Destroy(held);
  for (const Leaving& leaving : leaving_) Destroy(leaving.held);
}

bool SpreadMemory::Wants(uint64_t num_bytes) const {
  if (num_bytes == 0 || num_bytes < least_bytes_) return false;
  return driver_.cuMemAddressReserve != nullptr && driver_.cuMemCreate != nullptr && driver_.cuMemMap != nullptr &&
         driver_.cuMemSetAccess != nullptr && driver_.cuMemExportToShareableHandle != nullptr &&
         driver_.cuMemGetAllocationGranularity != nullptr;
}

CUresult SpreadMemory::Map(Held& held) {
  const uint64_t num_bytes = held.place.num_bytes;
  if (const CUresult r = driver_.cuMemMap(held.place.address, num_bytes, 0, held.memory, 0); r != CUDA_SUCCESS) {
    return r;
  }
  for (const int ordinal : ordinals_) {
    int may_access = ordinal == held.place.device ? 1 : 0;
    if (may_access == 0) driver_.cuDeviceCanAccessPeer(&may_access, ordinal, held.place.device);
    if (may_access == 0) continue;
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {ordinal}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUresult granted = driver_.cuMemSetAccess(held.place.address, num_bytes, &access, 1);
    if (granted != CUDA_SUCCESS && ordinal == held.place.device) return granted;
  }
  return CUDA_SUCCESS;
}

CUresult SpreadMemory::Allocate(int device, uint64_t num_bytes, CUdeviceptr* address) {
  {
    const std::lock_guard lock(mutex_);
    DestroyWhatHasEnded();
  }
  const CUmemAllocationProp properties = PropertiesFor(device);
  size_t granule = 0;
  if (const CUresult r =
          driver_.cuMemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
      r != CUDA_SUCCESS) {
    return r;
  }
  if (granule == 0 || num_bytes > UINT64_MAX - granule) return CUDA_ERROR_OUT_OF_MEMORY;
  Held held;
  held.place.num_bytes = (num_bytes + granule - 1) / granule * granule;
  held.place.device = device;
  if (const CUresult r = driver_.cuMemCreate(&held.memory, held.place.num_bytes, &properties, 0); r != CUDA_SUCCESS) {
    return r;
  }
  CUdeviceptr reserved = 0;
  CUresult result = CUDA_SUCCESS;
  if (const auto taken = arena_.Take(held.place.num_bytes)) {
    reserved = *taken;
  } else {
    result = driver_.cuMemAddressReserve(&reserved, held.place.num_bytes, 0, 0, 0);
  }
  held.place.address = reserved;
  if (result == CUDA_SUCCESS) result = Map(held);
  if (result != CUDA_SUCCESS) {
    Destroy(held);
    return result;
  }
  *address = held.place.address;
  const std::lock_guard lock(mutex_);
  held.place.id = ++last_id_;
  held_.emplace(held.place.address, held);
  return CUDA_SUCCESS;
}

// Of what was never mapped, unmapping fails and changes nothing.
void SpreadMemory::Destroy(const Held& held) {
  if (held.place.address != 0) {
    driver_.cuMemUnmap(held.place.address, held.place.num_bytes);
    if (!arena_.Give(held.place.address, held.place.num_bytes)) {
      driver_.cuMemAddressFree(held.place.address, held.place.num_bytes);
    }
  }
  driver_.cuMemRelease(held.memory);
}

std::optional<SpreadMemory::Held> SpreadMemory::Take(CUdeviceptr address) {
  const auto found = held_.find(address);
  if (found == held_.end()) return std::nullopt;
  const Held held = found->second;
  held_.erase(found);
  return held;
}

void SpreadMemory::DestroyWhatHasEnded() {
  std::erase_if(leaving_, [&](const Leaving& leaving) {
    if (!leaving.mark.HasEnded()) return false;
    Destroy(leaving.held);
    return true;
  });
}

bool SpreadMemory::Free(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  DestroyWhatHasEnded();
  const auto held = Take(address);
  if (held) Destroy(*held);
  return held.has_value();
}

bool SpreadMemory::FreeBehind(CUdeviceptr address, Mark mark) {
  const std::lock_guard lock(mutex_);
  DestroyWhatHasEnded();
  const auto held = Take(address);
  if (held) leaving_.push_back({*held, std::move(mark)});
  return held.has_value();
}

bool SpreadMemory::Has(CUdeviceptr address) const {
  const std::lock_guard lock(mutex_);
  return held_.contains(address);
}

std::optional<SpreadMemory::Allocation> SpreadMemory::Around(uint64_t begin, uint64_t end) const {
  const std::lock_guard lock(mutex_);
  auto at = held_.upper_bound(begin);
  if (at == held_.begin()) return std::nullopt;
  const Allocation& place = std::prev(at)->second.place;
  if (end < begin || end - place.address > place.num_bytes) return std::nullopt;
  return place;
}

UniqueFd SpreadMemory::Export(uint64_t id) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [address, held] : held_) {
    if (held.place.id != id) continue;
    int fd = -1;
    const CUresult result =
        driver_.cuMemExportToShareableHandle(&fd, held.memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    return result == CUDA_SUCCESS ? UniqueFd(fd) : UniqueFd();
  }
  return UniqueFd();
}

}  // namespace tally::server
