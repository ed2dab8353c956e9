#include "server/executor/session/pools.h"

#include <algorithm>

namespace tally::server {

CUresult Pools::NewOnDevice(int device, CUmemoryPool* pool) const {
  if (driver_.cuMemPoolCreate == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = devices_.device(device);
  return driver_.cuMemPoolCreate(pool, &properties);
}

CUresult Pools::Default(int device, CUmemoryPool* pool) {
  if (const auto known = default_.find(device); known != default_.end()) {
    *pool = known->second;
    return CUDA_SUCCESS;
  }
  if (const CUresult r = NewOnDevice(device, pool); r != CUDA_SUCCESS) return r;
  default_[device] = *pool;
  return CUDA_SUCCESS;
}

bool Pools::IsDefault(CUmemoryPool pool) const {
  return std::any_of(default_.begin(), default_.end(), [&](const auto& known) { return known.second == pool; });
}

void Pools::Forget(CUmemoryPool pool) {
  opened.erase(pool);
  if (exportable.erase(pool) != 0) {
    // Nobody else holds a pool; it can be opened no more.
    static_cast<void>(shared_.Drop(shm::SharedKind::kPool, reinterpret_cast<uint64_t>(pool), true));
  }
}

void Pools::DestroyAll() {
  handles_.RemoveEach(shm::HandleKind::kMemPool, shm::kNoContext, [&](const HandleTable::Entry& entry) {
    const auto pool = static_cast<CUmemoryPool>(entry.value);
    Forget(pool);
    if (!IsDefault(pool)) driver_.cuMemPoolDestroy(pool);
  });
  for (const auto& [device, pool] : default_) driver_.cuMemPoolDestroy(pool);
  default_.clear();
}

}  // namespace tally::server
