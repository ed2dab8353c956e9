#include "server/executor/dispatch/awake_watch.h"

#include <algorithm>
#include <thread>

namespace tally::server {
namespace {

constexpr auto kLongestAwake = std::chrono::milliseconds(10);
constexpr auto kLookAwake = std::chrono::microseconds(100);  // what is complete should be noticed, too
// Below that a sleep is as good as waiting for the page, and costs whoever announces no system call.
constexpr auto kShortLook = std::chrono::milliseconds(1);

}  // namespace

bool AwakeWatch::MayStayAwake() const {
  return may_spin_ && watch_ != nullptr && watch_->IsHighPriorityPresent() &&
         clock_.Now() - last_launch_.load(std::memory_order_relaxed) < kLongestAwake;
}

void AwakeWatch::WaitWhileOpen(std::chrono::nanoseconds look) {
  if (MayStayAwake()) {
    const TimePoint until = clock_.Now() + std::min<std::chrono::nanoseconds>(look, kLookAwake);
    while (!watch_->IsClosed(device_) && clock_.Now() < until) {
      PauseAwake();
    }
  } else if (watch_ == nullptr || look < kShortLook) {
    std::this_thread::sleep_for(look);
  } else {
    watch_->WaitWhileOpen(device_, look);
  }
}

}  // namespace tally::server
