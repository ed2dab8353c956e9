#include "server/executor/process/refresher.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/executor/dispatch/high_priority_watch.h"

namespace tally::server {

Refresher::Refresher(HighPriorityWatch& watch, int device, Preempt preempt, Times times)
    : watch_(watch), device_(device), preempt_(std::move(preempt)), times_(times) {
  auto thread = StartThread("refresher", [this] { Run(); });
  if (thread) {
    thread_ = std::move(*thread);
  } else {
    LOG_WARNING("device {}: contexts are not refreshed: {}", device, thread.error().message());
  }
}

Refresher::~Refresher() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stops_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool Refresher::Sleep() {
  std::unique_lock lock(mutex_);
  return !stops_.wait_for(lock, times_.between, [this] { return is_stopping_; });
}

bool Refresher::WaitForPause() {
  const SteadyClock clock;
  const TimePoint limit = clock.Now() + times_.patience;
  while (clock.Now() < limit) {
    if (watch_.IsClosed(device_)) {
      watch_.WaitWhileClosed(device_, limit - clock.Now());
      continue;
    }
    const auto left = watch_.OpenSince(device_) + times_.pause - clock.Now();
    if (left <= left.zero()) return true;
    watch_.WaitWhileOpen(device_, left);
  }
  return false;
}

void Refresher::Run() {
  std::optional<uint32_t> phase_then;  // there was no high-priority work since, if it is that still
  while (Sleep()) {
    if (!watch_.IsOneOfThem(device_)) continue;
    const std::optional<uint32_t> phase = watch_.QuietPhase(device_);
    if ((phase && phase == phase_then) || !WaitForPause() || preempt_() == 0) continue;
    num_refreshes_.fetch_add(1, std::memory_order_relaxed);
    phase_then = watch_.QuietPhase(device_);
  }
}

}  // namespace tally::server
