// SuspensionRule: when suspending best-effort contexts is worth it, and when letting them go on is.
//
// High-priority work comes in stretches (server/executor/process/suspender.h). Suspending takes about a millisecond
// and going on a third of one, so both can come too soon: suspending for a stretch that is over by then, and going on
// in a gap after which the stretch continues, without protection until the next suspension has worked. Both are guesses
// about how long something lasts that has lasted for a while, made from how it went the last times:
//
//   suspending   at once if most of the last stretches were long; else once this one is
//   going on     after the gap has lasted for the *patience*, which doubles whenever going on was regretted and shrinks
//                when it was not: about one regret in six is put up with
//
// A shorter gap belongs to the stretch, whether that is suspended or not; and what is regretted teaches patience either
// way. (It must: where only suspended stretches did, requests a little further apart than the least patience were
// stretches too short to suspend for, for ever.)
//
// Not thread-safe. No clock: the caller measures.
#pragma once

#include <algorithm>
#include <chrono>

#include "scheduler/recent_times.h"

namespace tally::scheduler {

class SuspensionRule {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  // Of a stretch: about what suspending and going on take together.
  static constexpr Nanoseconds kWorthwhile = std::chrono::microseconds(1500);
  // Best-effort work that got less of a gap had better got nothing: about what going on takes.
  static constexpr Nanoseconds kRegrettable = std::chrono::microseconds(500);
  static constexpr Nanoseconds kLeastPatience = std::chrono::microseconds(50);
  static constexpr Nanoseconds kMostPatience = std::chrono::microseconds(500);

  // How long a stretch must have lasted to be suspended for.
  Nanoseconds Delay() const {
    return !stretches_.empty() && stretches_.Median() >= kWorthwhile ? Nanoseconds(0) : kWorthwhile;
  }
  // For how long no more must have come, from the end of the hold-off, until a stretch is over.
  Nanoseconds patience() const { return patience_; }

  // A stretch has lasted so long.
  void OnStretch(Nanoseconds length) { stretches_.Add(length); }
  // The last stretch had been over, and what it had suspended going on, for so long when the next one began.
  void OnGap(Nanoseconds length) {
    patience_ = length < kRegrettable ? std::min(patience_ * 2, kMostPatience)
                                      : std::max(patience_ - patience_ / 8, kLeastPatience);
  }

 private:
  RecentTimes stretches_;
  Nanoseconds patience_ = std::chrono::microseconds(200);
};

}  // namespace tally::scheduler
