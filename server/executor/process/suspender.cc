#include "server/executor/process/suspender.h"

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "base/thread.h"
#include "base/thread_urgency.h"
#include "server/executor/dispatch/high_priority_watch.h"

namespace tally::server {
namespace {

// How late the end, or being enabled, is noticed.
constexpr std::chrono::milliseconds kLook{100};
// A minute of asking; then the next stretch may help.
constexpr std::chrono::milliseconds kPauseBetweenTries{10};
constexpr int kMostTries = 6000;

}  // namespace

Suspender::Suspender(HighPriorityWatch& watch, int device, Suspend suspend)
    : watch_(watch), device_(device), suspend_(std::move(suspend)) {
  auto thread = StartThread("suspender", [this] { Run(); });
  if (thread) {
    thread_ = std::move(*thread);
  } else {
    LOG_WARNING("device {}: contexts are not suspended for now: {}", device, thread.error().message());
  }
}

Suspender::~Suspender() {
  is_stopping_.store(true);
  if (thread_.joinable()) thread_.join();
}

bool Suspender::MaySuspend() { return is_enabled_.load() && !is_stopping_.load() && !watch_.IsOneOfThem(); }

Suspender::Stretch Suspender::Follow(TimePoint since) {
  const TimePoint worth_at = since + rule_.Delay();
  Stretch stretch{.end = since};
  for (bool was_tried = false; MaySuspend();) {
    const TimePoint now = clock_.Now();
    if (!watch_.IsClosed(device_)) {
      // Also of what is not suspended yet: else each request of a burst would be a stretch too short to suspend.
      stretch.end = std::max(watch_.OpenSince(device_), since);
      const auto left = stretch.end + rule_.patience() - now;
      if (left <= left.zero()) break;
      watch_.WaitWhileOpen(device_, left);
    } else if (!was_tried && now >= worth_at) {
      was_tried = true;
      stretch.is_suspended = suspend_(true) > 0;
      if (stretch.is_suspended) num_suspensions_.fetch_add(1, std::memory_order_relaxed);
    } else {
      watch_.WaitWhileClosed(device_, was_tried ? kLook : std::min<std::chrono::nanoseconds>(kLook, worth_at - now));
    }
  }
  return stretch;
}

// Whatever the driver says: what stays suspended hangs its programs for good.
void Suspender::GoOn() {
  for (int tries = 0; suspend_(false) > 0 && tries < kMostTries; ++tries) {
    if (tries == 0) LOG_WARNING("device {}: the driver does not let suspended work go on; asking again", device_);
    std::this_thread::sleep_for(kPauseBetweenTries);
  }
}

void Suspender::StirUp() {
  num_standstills_.fetch_add(1, std::memory_order_relaxed);
  suspend_(true);
  GoOn();
}

void Suspender::Run() {
  SetThreadUrgent(true);                // whoever has priority waits for it, whatever else the processors do
  std::optional<TimePoint> over_since;  // the last stretch; what it suspended goes on
  uint64_t num_seen = 0;                // standstills that something was done about, or that there was a reason for
  while (!is_stopping_.load()) {
    if (!MaySuspend()) {
      std::this_thread::sleep_for(kLook);
      continue;
    }
    if (!watch_.IsClosed(device_)) {
      if (const uint64_t count = watch_.NumStandstills(device_); count != num_seen) {
        num_seen = count;
        StirUp();
      }
      watch_.WaitWhileOpen(device_, kLook);
      continue;
    }
    const TimePoint since = clock_.Now();
    if (over_since) rule_.OnGap(since - *over_since);
    const Stretch stretch = Follow(since);
    rule_.OnStretch(stretch.end - since);
    if (stretch.is_suspended) GoOn();
    num_seen = watch_.NumStandstills(device_);
    over_since = clock_.Now();
  }
}

}  // namespace tally::server
