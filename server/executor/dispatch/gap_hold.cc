#include "server/executor/dispatch/gap_hold.h"

#include "base/log.h"
#include "server/executor/driver/driver_libraries.h"

namespace tally::server {

void HoldChoice::OnRequest(std::chrono::nanoseconds took) {
  const std::lock_guard lock(mutex_);
  const bool did_prefer = guard_.prefers_holding();
  guard_.OnRequest(took);
  holds_.store(guard_.holds(), std::memory_order_relaxed);
  if (guard_.prefers_holding() == did_prefer || num_said_ == kMostSaid) return;
  ++num_said_;
  LOG_INFO("high-priority requests are {} with the GPU held in their gaps: it is {}",
           did_prefer ? "no shorter" : "shorter", did_prefer ? "not held" : "held");
}

void GapHold::Open() {
  const CUresult loaded = kernels_.Load();
  if (loaded != CUDA_SUCCESS) LOG_WARNING("the GPU is not held in gaps: {}", CudaErrorName(driver_, loaded));
}

void GapHold::WhileBusy(TimePoint now, bool has_come, bool may_hold) {
  if (has_come) last_work_ = now;
  if (may_hold && now - last_work_ < kLongestWithoutWork) {
    kernels_.Keep(kQueue);
  } else {
    kernels_.Release();
  }
}

TimePoint GapHold::OnIdle(TimePoint now, bool may_hold) {
  // What is not held by now has been turned away from.
  return now + rule_.OnIdle(now, may_hold && kernels_.is_holding());
}

}  // namespace tally::server
