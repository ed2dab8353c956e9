#include "server/executor_process/suspender.h"

#include <optional>

#include "server/gpu/high_priority_watch.h"

namespace tally::server {
namespace {

// How late the end, or being enabled, is noticed.
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

Suspender::Suspender(HighPriorityWatch& watch, int device, Suspend suspend)
    : watch_(watch), device_(device), suspend_(std::move(suspend)), thread_([this] { Run(); }) {}

Suspender::~Suspender() {
  is_stopping_.store(true);
  thread_.join();
}

bool Suspender::MaySuspend() { return is_enabled_.load() && !is_stopping_.load() && !watch_.IsOneOfThem(); }

bool Suspender::AwaitWorth(TimePoint since) {
  const auto delay = rule_.Delay();
  while (MaySuspend() && watch_.IsClosed(device_)) {
    const auto left = since + delay - clock_.Now();
    if (left <= left.zero()) return true;
    watch_.WaitWhileClosed(device_, left);
  }
  return false;
}

TimePoint Suspender::AwaitEndOfStretch() {
  while (MaySuspend() && watch_.IsClosed(device_)) watch_.WaitWhileClosed(device_, kLook);
  return clock_.Now();
}

TimePoint Suspender::AwaitEndOfSuspension() {
  for (;;) {
    const TimePoint end = AwaitEndOfStretch();
    if (MaySuspend()) watch_.WaitWhileOpen(device_, rule_.patience());
    if (!MaySuspend() || !watch_.IsClosed(device_)) return end;
  }
}

void Suspender::Run() {
  std::optional<TimePoint> goes_on_since;  // until the next stretch
  while (!is_stopping_.load()) {
    if (!MaySuspend()) {
      std::this_thread::sleep_for(kLook);
      continue;
    }
    if (!watch_.IsClosed(device_)) {
      watch_.WaitWhileOpen(device_, kLook);
      continue;
    }
    const TimePoint since = clock_.Now();
    if (goes_on_since) rule_.OnGap(since - *goes_on_since);
    goes_on_since.reset();
    if (AwaitWorth(since) && suspend_(true) > 0) {
      num_suspensions_.fetch_add(1, std::memory_order_relaxed);
      rule_.OnStretch(AwaitEndOfSuspension() - since);
      suspend_(false);
      goes_on_since = clock_.Now();
    } else {
      rule_.OnStretch(AwaitEndOfStretch() - since);
    }
  }
}

}  // namespace tally::server
