// DeschedulingRule: when descheduling best-effort contexts is worth it, and when letting them go on is.
//
// High-priority work comes in busy periods (server/executor/process/descheduler.h). Descheduling takes about a
// millisecond and going on a third of one, so both can come too soon: descheduling for a busy period that is over by
// then, and going on in a gap after which the busy period continues, without protection until the next descheduling has
// worked. Both are guesses about how long something lasts that has lasted for a while, made from how it went the last
// times:
//
//   descheduling at once if most of the last busy periods were long; else once this one is
//   going on     after the gap has lasted for the *patience*, which doubles whenever going on was regretted and shrinks
//                when it was not: about one regret in six is put up with
//
// A shorter gap belongs to the busy period, whether that is descheduled or not; and what is regretted teaches patience
// either way. (It must: where only descheduled busy periods did, requests a little further apart than the least
// patience were busy periods too short to deschedule for, for ever.)
//
// Not thread-safe. No clock: the caller measures.
#pragma once

#include <algorithm>
#include <chrono>

#include "scheduler/recent_times.h"

namespace tally::scheduler {

class DeschedulingRule {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  // Of a busy period: about what descheduling and going on take together.
  static constexpr Nanoseconds kWorthwhile = std::chrono::microseconds(1500);
  // Best-effort work that got less of a gap had better got nothing: about what going on takes.
  static constexpr Nanoseconds kRegrettable = std::chrono::microseconds(500);
  static constexpr Nanoseconds kLeastPatience = std::chrono::microseconds(50);
  static constexpr Nanoseconds kMostPatience = std::chrono::microseconds(500);

  // How long a busy period must have lasted to be descheduled for.
  Nanoseconds Delay() const {
    return !busy_periods_.empty() && busy_periods_.Median() >= kWorthwhile ? Nanoseconds(0) : kWorthwhile;
  }
  // For how long no more must have come, from the end of the hold-off, until a busy period is over.
  Nanoseconds patience() const { return patience_; }

  // A busy period has lasted so long.
  void OnBusyPeriod(Nanoseconds length) { busy_periods_.Add(length); }
  // The last busy period had been over, and what it had descheduled going on, for so long when the next one began.
  void OnGap(Nanoseconds length) {
    patience_ = length < kRegrettable ? std::min(patience_ * 2, kMostPatience)
                                      : std::max(patience_ - patience_ / 8, kLeastPatience);
  }

 private:
  RecentTimes busy_periods_;
  Nanoseconds patience_ = std::chrono::microseconds(200);
};

}  // namespace tally::scheduler
