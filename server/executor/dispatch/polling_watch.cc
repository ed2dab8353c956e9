#include "server/executor/dispatch/polling_watch.h"

#include <algorithm>
#include <thread>

namespace tally::server {
namespace {

constexpr auto kLongestPolling = std::chrono::milliseconds(10);
constexpr auto kLookWhilePolling = std::chrono::microseconds(100);  // what is complete should be noticed, too
// Below that a sleep is as good as waiting for the page, and costs whoever announces no system call.
constexpr auto kShortLook = std::chrono::milliseconds(1);

}  // namespace

bool PollingWatch::MayPoll() const {
  return may_spin_ && watch_ != nullptr && watch_->IsHighPriorityPresent(device_) &&
         clock_.Now() - last_launch_.load(std::memory_order_relaxed) < kLongestPolling;
}

void PollingWatch::WaitWhileOpen(std::chrono::nanoseconds look) {
  if (MayPoll()) {
    const TimePoint until = clock_.Now() + std::min<std::chrono::nanoseconds>(look, kLookWhilePolling);
    while (!watch_->IsClosed(device_) && clock_.Now() < until) {
      PauseBetweenPolls();
    }
  } else if (watch_ == nullptr || look < kShortLook) {
    std::this_thread::sleep_for(look);
  } else {
    watch_->WaitWhileOpen(device_, look);
  }
}

}  // namespace tally::server
