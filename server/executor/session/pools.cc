#include "server/executor/session/pools.h"

namespace tally::server {

CUresult NewDevicePool(SessionState& session, int device, CUmemoryPool* pool) {
  if (session.driver.cuMemPoolCreate == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = session.core.devices->device(device);
  return session.driver.cuMemPoolCreate(pool, &properties);
}

CUresult DefaultPool(SessionState& session, int device, CUmemoryPool* pool) {
  if (const auto known = session.default_pools.find(device); known != session.default_pools.end()) {
    *pool = known->second;
    return CUDA_SUCCESS;
  }
  if (const CUresult r = NewDevicePool(session, device, pool); r != CUDA_SUCCESS) return r;
  session.default_pools[device] = *pool;
  return CUDA_SUCCESS;
}

}  // namespace tally::server
