// ArrivalNotice: when to have the GPU turn to a high-priority context whose work is expected, and what became of that.
//
// A switch takes `switch_time`. So the GPU is *noticed* so much before the work is expected, and held until the window
// in which it was expected has passed. Not only until the work comes: it is on its way to the GPU then, which would
// find nothing and turn back. (Who sees the end of that work ends the hold.)
//
//      OnExpected          held since          work begins
//      |---- pending ------|--- switch ---|-held-|            hit
//      |--------- work begins                                 late
//      |-------------------|--- switch ---|------- until -|   missed
//
// One expectation at a time: windows that are told while one is pending become one, if that is not too wide.
// Not thread-safe: the owner serialises calls. Times may jump; what is expected of the past or of the far future is
// not.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "scheduler/notice_budget.h"

namespace tally::scheduler {

class ArrivalNotice {
 public:
  struct Config {
    std::chrono::nanoseconds switch_time = std::chrono::microseconds(220);
    // Behind the window, for work that begins at its end and is on its way to the GPU.
    std::chrono::nanoseconds tail = std::chrono::microseconds(80);
    // What a notice in vain costs best-effort work besides the time that the GPU is held: two switches.
    std::chrono::nanoseconds switches_cost = std::chrono::microseconds(300);
    std::chrono::nanoseconds farthest = std::chrono::seconds(1);
    std::chrono::nanoseconds widest = std::chrono::milliseconds(1);
    // Less of a switch than this before its work is no use.
    std::chrono::nanoseconds least_ahead = std::chrono::microseconds(50);
  };
  struct Counts {
    uint64_t announced = 0;
    uint64_t hit = 0;      // the GPU was there, or on its way, before the work came
    uint64_t missed = 0;   // no work came
    uint64_t late = 0;     // the work came before the notice, or hardly behind it
    uint64_t refused = 0;  // by the budget
    bool operator==(const Counts&) const = default;
  };
  // What there is to do now.
  struct Step {
    std::optional<std::chrono::nanoseconds> hold;  // have the GPU turn to the context, and hold it so long
    bool releases = false;                         // nobody needs it any more
    std::optional<TimePoint> next;                 // when to ask again; none: when something new is expected
  };

  explicit ArrivalNotice(Config config) : config_(config) {}
  ArrivalNotice() : ArrivalNotice(Config{}) {}

  // The program's word: checked here. Nothing comes of it while the GPU is held.
  void OnExpected(TimePoint from, TimePoint until, TimePoint now);
  // `work_began`: when work came last, if it came since the last call. `is_busy`: there is some now.
  Step Advance(TimePoint now, std::optional<TimePoint> work_began, bool is_busy, NoticeBudget& budget);
  const Counts& counts() const { return counts_; }

 private:
  enum class State : uint8_t { kIdle, kPending, kHeld };

  void EndHeld(NoticeBudget& budget);

  const Config config_;
  State state_ = State::kIdle;
  TimePoint told_at_{};
  TimePoint from_{};
  TimePoint until_{};
  TimePoint held_since_{};
  std::optional<TimePoint> work_began_;  // while held
  std::chrono::nanoseconds taken_{0};
  Counts counts_;
};

}  // namespace tally::scheduler
