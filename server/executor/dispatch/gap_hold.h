// Holding the GPU in the gaps of high-priority work, so that what comes after one need not wait for a switch.
//
//   whether    HoldChoice: if a service's own requests are shorter with it (scheduler/hold_guard.h).
//              That of the session whose launch came last counts
//   how long   scheduler/hold_rule.h, by what the gaps of the device were like
//   how        driver/holding_kernels.h
//
// It begins with a busy period, as kernels that come after its end come too late: the GPU has turned away.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "scheduler/hold_guard.h"
#include "scheduler/hold_rule.h"
#include "server/executor/dispatch/figure_counters.h"
#include "server/executor/driver/holding_kernels.h"

namespace tally::server {

// Of one session: requests of another one are of another length. Thread-safe.
class HoldChoice {
 public:
  // Lines in the log: a program can make its requests such that the better way changes without end.
  static constexpr int kMostSaid = 16;

  bool holds() const { return holds_.load(std::memory_order_relaxed); }
  // One of its requests, while the GPU may be held. Counted in the session's figures.
  void OnRequest(std::chrono::nanoseconds took, FigureCounters& figures);

 private:
  std::atomic<bool> holds_{false};
  std::mutex mutex_;
  scheduler::HoldGuard guard_;  // guarded by mutex_
  int num_said_ = 0;            // likewise
};

// Of one device. OnBusy, OnIdle and OnUnseenGap are serialised by the caller; the others and OnIdle are for one thread,
// on which the device's context is current.
class GapHold {
 public:
  // What is held for longer than this without new work may be held for ever: a stream that waits for what never comes
  // counts as busy.
  static constexpr std::chrono::milliseconds kLongestWithoutWork{3};

  // For 320 us, which a thread that looks every 50 us renews in time; short ones, as a service's kernel may want the
  // room of one.
  static constexpr HoldingKernels::Queue kQueue{32, std::chrono::microseconds(10)};

  explicit GapHold(const DriverTable& driver) : driver_(driver), kernels_(driver) {}
  // Loads code, which waits for the whole context: before a program's work is on it. False: the driver refuses, and
  // nothing is ever held.
  bool Open();

  // Counted in the figures of the session whose work it is.
  void OnBusy(TimePoint now, FigureCounters& figures);
  // A request that comes before anybody has seen the last one end. The GPU turns away in such a gap, too, unless it is
  // held.
  void OnUnseenGap(TimePoint now, bool is_allowed, bool is_wanted, FigureCounters& figures);
  // High-priority work runs; `has_come`: more of it since the last look.
  void WhileBusy(TimePoint now, bool has_come, bool may_hold);
  // It has ended. Until when to hold, with WhileIdle again and again; `now`: not at all. `is_allowed`: somebody else
  // would get the gap; `is_wanted`: by the HoldChoice.
  TimePoint OnIdle(TimePoint now, bool is_allowed, bool is_wanted);
  void WhileIdle() { kernels_.Keep(kQueue); }
  // Some gaps, such as the last ones, would be held. If not, a HoldChoice has nothing to find out.
  bool would_hold() const { return rule_.would_hold(); }
  void End() { kernels_.Release(); }

 private:
  // One that is not over, with best-effort programs there.
  struct Gap {
    TimePoint since;
    TimePoint held_until;
    bool is_by_guard;  // not held, because the HoldChoice does not want it
  };
  // Returns its beginning; `may_hold`: the GPU is held until now.
  Gap Begin(TimePoint now, bool may_hold, bool is_wanted);
  static void Count(const Gap& gap, TimePoint end, FigureCounters& figures);

  scheduler::HoldRule rule_{{}};
  std::optional<Gap> gap_;
  const DriverTable& driver_;
  HoldingKernels kernels_;
  TimePoint last_work_{};
};

}  // namespace tally::server
