// Holding the GPU in the gaps of high-priority work, so that what comes after one need not wait for a switch.
//
//   whether    HoldChoice: while there is best-effort work to hold it against, if the service's own requests are
//   shorter
//              with it (scheduler/hold_guard.h); one for all devices
//   how long   scheduler/hold_rule.h, by what the gaps of the device were like
//   how        gpu_holder.h
//
// It begins with a busy period, as kernels that come after its end come too late: the GPU has turned away.
#pragma once

#include <atomic>
#include <mutex>

#include "base/clock.h"
#include "scheduler/hold_guard.h"
#include "scheduler/hold_rule.h"
#include "server/executor/dispatch/gpu_holder.h"

namespace tally::server {

// Thread-safe.
class HoldChoice {
 public:
  // There are best-effort contexts that the GPU would turn to. Off until then.
  void Allow(bool is_allowed) { is_allowed_.store(is_allowed, std::memory_order_relaxed); }
  bool holds() const {
    return is_allowed_.load(std::memory_order_relaxed) && guard_holds_.load(std::memory_order_relaxed);
  }
  // Of a high-priority program. Counts while holding is allowed.
  void OnRequest(std::chrono::nanoseconds took);

 private:
  std::atomic<bool> is_allowed_{false};
  std::atomic<bool> guard_holds_{false};
  std::mutex mutex_;
  scheduler::HoldGuard guard_;  // guarded by mutex_
  bool did_prefer_ = false;     // likewise: what the log said last
};

// Of one device. OnBusy and OnIdle are serialised by the caller; all but OnBusy is for one thread, on which the
// device's context is current.
class GapHold {
 public:
  // What is held for longer than this without new work may be held for ever: a stream that waits for what never comes
  // counts as busy.
  static constexpr std::chrono::milliseconds kLongestWithoutWork{3};

  // `choice` outlives this.
  GapHold(const HoldChoice& choice, const DriverTable& driver) : choice_(choice), holder_(driver, {}) {}
  // Loads code, which waits for the whole context: before a program's work is on it.
  bool Open() { return holder_.Open(); }

  void OnBusy(TimePoint now) { rule_.OnBusy(now); }
  // High-priority work runs; `has_come`: more of it since the last look.
  void WhileBusy(TimePoint now, bool has_come);
  // It has ended. Until when to hold, with WhileIdle again and again; in the past: not at all.
  TimePoint OnIdle(TimePoint now);
  void WhileIdle() { holder_.Keep(); }
  void End() { holder_.Release(); }

 private:
  const HoldChoice& choice_;
  scheduler::HoldRule rule_{{}};
  GpuHolder holder_;
  TimePoint last_work_{};
};

}  // namespace tally::server
