#include "server/executor/dispatch/busy_clock.h"

#include <algorithm>
#include <numeric>

namespace tally::server {

void StreamWork::OnSeen(uint64_t num_put, TimePoint at) {
  uint64_t seen = num_seen_.load(std::memory_order_relaxed);
  if (seen >= num_put) return;  // waiting once more for what is complete ends nothing
  done_at_.store(at, std::memory_order_relaxed);
  while (seen < num_put && !num_seen_.compare_exchange_weak(seen, num_put, std::memory_order_release)) {
  }
  if (BusyListener* const listener = clock_.listener_.load(std::memory_order_acquire); listener != nullptr)
    listener->OnSeen();
}

bool BusyClock::IsBusyLocked() const {
  return std::ranges::any_of(in_use_, [](const auto& work) { return !work->is_done(); });
}

bool BusyClock::IsBusy() const {
  const std::lock_guard lock(mutex_);
  return IsBusyLocked();
}

TimePoint BusyClock::EndLocked(TimePoint now) const {
  if (IsBusyLocked()) return now;
  TimePoint end = began_;
  for (const auto& work : in_use_) end = std::max(end, work->done_at());
  return end;
}

void BusyClock::Begin(const std::shared_ptr<StreamWork>& work) {
  if (used_ != nullptr) used_->Note(device_);
  const std::lock_guard lock(mutex_);
  if (!IsBusyLocked()) {
    const TimePoint now = clock_.Now();
    before_ += EndLocked(now) - began_;
    began_ = now;
    in_use_.clear();
    if (BusyListener* const listener = listener_.load(std::memory_order_relaxed); listener != nullptr)
      listener->OnBusy(device_, now);
  }
  // What is done while another stream is not was done before that will be.
  std::erase_if(in_use_, [](const auto& other) { return other->is_done(); });
  in_use_.push_back(work);
}

void BusyClock::Tell(BusyListener& listener) {
  const std::lock_guard lock(mutex_);
  listener_.store(&listener, std::memory_order_release);
}

BusyTimes BusyClock::Measure(bool is_high_priority) {
  const std::lock_guard lock(mutex_);
  const std::chrono::nanoseconds all = before_ + (EndLocked(clock_.Now()) - began_);
  // Less than before: what was thought to run still has been found to have ended a moment earlier.
  if (all > measured_) {
    by_class_[is_high_priority ? 1 : 0] += all - measured_;
    measured_ = all;
  }
  return by_class_;
}

bool BusyTime::IsBusy() const {
  return std::ranges::any_of(clocks_, [](const auto& clock) { return clock->IsBusy(); });
}

uint64_t BusyTime::num_put() const {
  return std::accumulate(clocks_.begin(), clocks_.end(), uint64_t{0},
                         [](uint64_t sum, const auto& clock) { return sum + clock->num_put(); });
}

void BusyTime::OnEvent(uint64_t num_put, TimePoint at) {
  event_at_.store(at, std::memory_order_relaxed);
  event_num_put_.store(num_put, std::memory_order_release);
}

TimePoint BusyTime::WhenDone(TimePoint now) const {
  if (event_num_put_.load(std::memory_order_acquire) != num_put()) return now;
  return std::min(now, event_at_.load(std::memory_order_relaxed));
}

}  // namespace tally::server
