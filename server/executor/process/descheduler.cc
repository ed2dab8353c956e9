#include "server/executor/process/descheduler.h"

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
// A minute of asking; then the next busy period may help.
constexpr std::chrono::milliseconds kPauseBetweenTries{10};
constexpr int kMostTries = 6000;

}  // namespace

Descheduler::Descheduler(HighPriorityWatch& watch, int device, Deschedule deschedule)
    : watch_(watch), device_(device), deschedule_(std::move(deschedule)) {
  auto thread = StartThread("descheduler", [this] { Run(); });
  if (thread) {
    thread_ = std::move(*thread);
  } else {
    LOG_WARNING("device {}: contexts are not descheduled for now: {}", device, thread.error().message());
  }
}

Descheduler::~Descheduler() {
  is_stopping_.store(true);
  if (thread_.joinable()) thread_.join();
}

bool Descheduler::MayDeschedule() { return is_enabled_.load() && !is_stopping_.load() && !watch_.IsOneOfThem(device_); }

Descheduler::BusyPeriod Descheduler::Follow(TimePoint since) {
  const TimePoint worth_at = since + rule_.Delay();
  BusyPeriod busy_period{.end = since};
  for (bool was_tried = false; MayDeschedule();) {
    const TimePoint now = clock_.Now();
    if (!watch_.IsClosed(device_)) {
      // Also of what is not descheduled yet: else each request of a burst would be a busy period too short to
      // deschedule.
      busy_period.end = std::max(watch_.OpenSince(device_), since);
      const auto left = busy_period.end + rule_.patience() - now;
      if (left <= left.zero()) break;
      watch_.WaitWhileOpen(device_, left);
    } else if (!was_tried && now >= worth_at) {
      was_tried = true;
      busy_period.is_descheduled = deschedule_(true) > 0;
      if (busy_period.is_descheduled) num_deschedulings_.fetch_add(1, std::memory_order_relaxed);
    } else {
      watch_.WaitWhileClosed(device_, was_tried ? kLook : std::min<std::chrono::nanoseconds>(kLook, worth_at - now));
    }
  }
  return busy_period;
}

// Whatever the driver says: what stays descheduled hangs its programs for good.
void Descheduler::GoOn() {
  for (int tries = 0; deschedule_(false) > 0 && tries < kMostTries; ++tries) {
    if (tries == 0) LOG_WARNING("device {}: the driver does not let descheduled work go on; asking again", device_);
    std::this_thread::sleep_for(kPauseBetweenTries);
  }
}

void Descheduler::StirUp() {
  num_standstills_.fetch_add(1, std::memory_order_relaxed);
  deschedule_(true);
  GoOn();
}

void Descheduler::Run() {
  SetThreadUrgent(true);                // whoever has priority waits for it, whatever else the processors do
  std::optional<TimePoint> over_since;  // the last busy period; what it descheduled goes on
  uint64_t num_seen = 0;                // standstills that something was done about, or that there was a reason for
  while (!is_stopping_.load()) {
    if (!MayDeschedule()) {
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
    const BusyPeriod busy_period = Follow(since);
    rule_.OnBusyPeriod(busy_period.end - since);
    if (busy_period.is_descheduled) GoOn();
    num_seen = watch_.NumStandstills(device_);
    over_since = clock_.Now();
  }
}

}  // namespace tally::server
