#include "server/executor/issue/launch_timer.h"

namespace tally::server {
namespace {

constexpr size_t kMostPending = 64;

}  // namespace

LaunchTimer::~LaunchTimer() {
  for (const Pending& pending : pending_) {
    driver_.cuEventDestroy_v2(pending.begin);
    driver_.cuEventDestroy_v2(pending.end);
  }
  for (CUevent event : free_) driver_.cuEventDestroy_v2(event);
}

CUevent LaunchTimer::AcquireLocked() {
  CUevent event = nullptr;
  if (!free_.empty()) {
    event = free_.back();
    free_.pop_back();
  } else if (driver_.cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
    return nullptr;
  }
  return event;
}

void LaunchTimer::ReleaseEvent(CUevent event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

std::optional<LaunchTimer::Timing> LaunchTimer::Begin(CUstream stream) {
  const std::optional<uint32_t> phase = watch_ == nullptr ? 0 : watch_->QuietPhase(device_);
  if (!phase) return std::nullopt;
  CUevent begin = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (pending_.size() >= kMostPending) return std::nullopt;
    begin = AcquireLocked();
  }
  if (begin == nullptr) return std::nullopt;
  if (driver_.cuEventRecord(begin, stream) != CUDA_SUCCESS) {
    ReleaseEvent(begin);
    return std::nullopt;
  }
  return Timing(*this, begin, *phase);
}

LaunchTimer::Timing::~Timing() {
  if (begin_ != nullptr) timer_.ReleaseEvent(begin_);
}

void LaunchTimer::Timing::End(CUstream stream, OnDuration on_duration) {
  const std::lock_guard lock(timer_.mutex_);
  CUevent end = timer_.AcquireLocked();
  if (end == nullptr) return;
  if (timer_.driver_.cuEventRecord(end, stream) != CUDA_SUCCESS) {
    timer_.free_.push_back(end);
    return;
  }
  timer_.pending_.push_back({std::exchange(begin_, nullptr), end, phase_, std::move(on_duration)});
  timer_.is_any_pending_.store(true, std::memory_order_relaxed);
}

void LaunchTimer::Collect() {
  if (!is_any_pending_.load(std::memory_order_relaxed)) return;
  for (;;) {
    Pending done;
    {
      const std::lock_guard lock(mutex_);
      if (pending_.empty()) break;
      const CUresult state = driver_.cuEventQuery(pending_.front().end);
      if (state == CUDA_ERROR_NOT_READY) return;
      done = std::move(pending_.front());
      pending_.pop_front();
      is_any_pending_.store(!pending_.empty(), std::memory_order_relaxed);
    }
    float milliseconds = 0;
    const bool is_timed = driver_.cuEventElapsedTime(&milliseconds, done.begin, done.end) == CUDA_SUCCESS;
    const bool was_quiet = watch_ == nullptr || watch_->QuietPhase(device_) == done.phase;
    if (is_timed && was_quiet) {
      done.on_duration(std::chrono::nanoseconds(static_cast<int64_t>(milliseconds * 1e6f)));
    }
    ReleaseEvent(done.begin);
    ReleaseEvent(done.end);
  }
}

}  // namespace tally::server
