#include "server/executor/driver/event_pool.h"

namespace tally::server {

CUresult EventPool::Acquire(CUevent* event) {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      *event = free_.back();
      free_.pop_back();
      return CUDA_SUCCESS;
    }
  }
  return driver_.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
}

void EventPool::Release(CUevent event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

void EventPool::Clear() {
  const std::lock_guard lock(mutex_);
  for (const CUevent event : free_) driver_.cuEventDestroy_v2(event);
  free_.clear();
}

}  // namespace tally::server
