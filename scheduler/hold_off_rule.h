// HoldOffRule: when a best-effort executor may dispatch, given what the high-priority class does.
//
// The rule is Tally's priority-aware scheduling: best-effort work runs only while no high-priority work is there.
// Between two launches of one high-priority request the GPU is idle for a moment (an eager framework leaves gaps of
// tens of microseconds); a best-effort kernel dispatched into such a gap delays the next launch. So best-effort work
// stays back for a *hold-off* after the last high-priority work ended. The hold-off follows the gaps that are observed:
// a little more than the usual gap inside a request, never more than `max_hold_off`, so that the idle time between
// requests is used.
//
//      high-priority   ####  ###   ####                   ###
//      may dispatch                    |<-hold-off->#####|
//
// Not thread-safe: the owner serialises calls. Times must not go backwards.
#pragma once

#include <chrono>
#include <optional>

#include "base/clock.h"

namespace tally::scheduler {

class HoldOffRule {
 public:
  struct Config {
    // Bounds of the hold-off. The lower one covers launch jitter; the upper one is what an idle gap costs best-effort
    // work.
    std::chrono::nanoseconds min_hold_off = std::chrono::microseconds(20);
    std::chrono::nanoseconds max_hold_off = std::chrono::microseconds(500);
    // Gaps longer than this are pauses between requests and teach nothing about the gaps inside one.
    std::chrono::nanoseconds longest_gap_inside_request = std::chrono::milliseconds(1);
  };

  explicit HoldOffRule(Config config) : config_(config), hold_off_(config.min_hold_off) {}

  // High-priority work arrived / all of it ended. Repeated reports of the same state are ignored.
  void OnHighPriorityBusy(TimePoint now);
  void OnHighPriorityIdle(TimePoint now);

  // The earliest time at which best-effort work may be dispatched, given what is known now; nothing while high-priority
  // work runs. A time <= now means: dispatch.
  std::optional<TimePoint> OpensAt() const;
  bool IsOpen(TimePoint now) const;

  std::chrono::nanoseconds hold_off() const { return hold_off_; }
  // In force at once, also for an idle time that has begun.
  void SetHoldOffBounds(std::chrono::nanoseconds min_hold_off, std::chrono::nanoseconds max_hold_off);

 private:
  Config config_;
  bool is_busy_ = false;
  bool was_ever_busy_ = false;
  TimePoint idle_since_{};             // meaningful while !is_busy_ && was_ever_busy_
  std::chrono::nanoseconds hold_off_;  // within [min_hold_off, max_hold_off]
};

}  // namespace tally::scheduler
