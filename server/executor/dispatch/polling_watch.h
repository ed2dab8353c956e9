// Polls for high-priority work instead of falling asleep, where that is worth it: waking a thread takes longer (50 to
// 250 us in a virtual machine) than everything else between a request and the GPU's being free for it.
//
// It polls while a high-priority program exists, for 10 ms after best-effort work that can be stopped was last
// launched, on machines with processors to spare. Nothing polls when nobody works.
//
// OnLaunch and IsOneOfThem are thread-safe; the rest is for the one thread that watches.
#pragma once

#include <atomic>
#include <chrono>

#include "base/clock.h"
#include "server/executor/channel/spin.h"
#include "server/executor/dispatch/high_priority_watch.h"
#include "server/executor/dispatch/standstill.h"

namespace tally::server {

class PollingWatch {
 public:
  // Both outlive it. `watch` null: there is never high-priority work.
  PollingWatch(HighPriorityWatch* watch, int device, const Clock& clock, bool may_spin = MaySpinLong())
      : watch_(watch), device_(device), may_spin_(may_spin), clock_(clock) {}

  // Work that can be stopped was launched, or goes on.
  void OnLaunch() { last_launch_.store(clock_.Now(), std::memory_order_relaxed); }

  // Who has priority runs in this executor, on this device.
  bool IsOneOfThem() const { return watch_ != nullptr && watch_->IsOneOfThem(device_); }
  bool IsClosed() const { return watch_ != nullptr && watch_->IsClosed(device_); }
  // Until there is high-priority work, or the caller should look at its own, which is at most after `look`.
  void WaitWhileOpen(std::chrono::nanoseconds look);
  void WaitWhileClosed(std::chrono::nanoseconds look) { watch_->WaitWhileClosed(device_, look); }
  // For a wait for work that nothing keeps back.
  Standstill NewStandstill(TimePoint since) const { return {watch_, device_, since}; }
  // When the high-priority work that runs, or ran last, was announced.
  TimePoint ClosedSince() const { return watch_->ClosedSince(device_); }

 private:
  bool MayPoll() const;

  HighPriorityWatch* const watch_;
  const int device_;
  const bool may_spin_;
  const Clock& clock_;
  std::atomic<TimePoint> last_launch_{TimePoint{}};
};

}  // namespace tally::server
