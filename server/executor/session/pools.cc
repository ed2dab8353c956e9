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

bool Pools::Ask(CUmemoryPool pool, Usage* usage) const {
  const auto ask = driver_.cuMemPoolGetAttribute;
  return ask != nullptr && ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &usage->reserved_bytes) == CUDA_SUCCESS &&
         ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &usage->used_bytes) == CUDA_SUCCESS;
}

bool Pools::MayAllocate(CUmemoryPool pool, int device, uint64_t size_bytes) {
  if (!quota_->is_limited()) return true;
  MemoryCharge& charge = charges_.try_emplace(pool, quota_, device).first->second;
  const auto fits = [&] {
    Usage usage;
    if (!Ask(pool, &usage) || size_bytes > UINT64_MAX - usage.used_bytes) return false;
    return charge.TryResize(std::max(usage.reserved_bytes, usage.used_bytes + size_bytes));
  };
  if (fits()) return true;
  Trim();
  return fits();
}

bool Pools::HasRoom(CUmemoryPool pool) {
  const auto found = charges_.find(pool);
  Usage usage;
  if (found == charges_.end() || !Ask(pool, &usage)) return true;
  if (found->second.TryResize(usage.reserved_bytes)) return true;
  found->second.Resize(usage.reserved_bytes);  // until it is trimmed
  NoteFreed();
  return false;
}

void Pools::Settle() {
  is_due_.store(false, std::memory_order_relaxed);
  for (auto& [pool, charge] : charges_) {
    Usage usage;
    if (Ask(pool, &usage)) charge.Resize(usage.reserved_bytes);
  }
}

void Pools::Trim() {
  if (driver_.cuMemPoolTrimTo == nullptr) return;
  for (const auto& [pool, charge] : charges_) driver_.cuMemPoolTrimTo(pool, 0);
  Settle();
}

void Pools::Forget(CUmemoryPool pool) {
  if (auto charge = charges_.extract(pool)) {
    Usage usage;
    if (Ask(pool, &usage)) charge.mapped().Resize(usage.used_bytes);
    if (charge.mapped().size_bytes() != 0) orphans_.push_back(std::move(charge));
  }
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
  charges_.clear();
  orphans_.clear();
}

}  // namespace tally::server
