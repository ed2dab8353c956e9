#include "server/executor/driver/peer_access.h"

#include "base/log.h"

namespace tally::server {

CUresult PeerAccess::Enable(int from, int to) {
  CUcontext own = nullptr;
  CUcontext peer = nullptr;
  if (const CUresult r = devices_.Context(from, &own); r != CUDA_SUCCESS) return r;
  if (const CUresult r = devices_.Context(to, &peer); r != CUDA_SUCCESS) return r;
  if (const CUresult r = driver_.cuCtxSetCurrent(own); r != CUDA_SUCCESS) return r;
  const std::lock_guard lock(mutex_);
  if (enabled_.contains({from, to})) return CUDA_SUCCESS;
  if (driver_.cuCtxEnablePeerAccess == nullptr) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const CUresult result = driver_.cuCtxEnablePeerAccess(peer, 0);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return result;
  enabled_.emplace(from, to);
  LOG_INFO("device {} may use memory of device {}", from, to);
  return CUDA_SUCCESS;
}

}  // namespace tally::server
