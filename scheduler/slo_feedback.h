// SloFeedback: moves the turnaround threshold, the hold-off and the drain budget so that a latency objective is met,
// and best-effort work gets as much as that leaves.
//
// One number, the *throttle level*, stands for all of them: 0 is the most generous Tuning allowed, 1 the most careful,
// and times in between are interpolated geometrically (0.5 is the default Tuning). Three knobs turned independently
// could work against one another. After every window of latencies (twice as many as it takes for one to be beyond the
// percentile, at least 200) the window's quantile decides:
//
//      above the objective            more careful, by 1/32, then 2/32, 4/32, 8/32 while it stays above
//      below 70 % of it, for a while  less careful, by 1/32
//      in between                     as it is
//
// It does not oscillate: what is tried and turns out to be too generous is undone by a step of the same size, and each
// such failure doubles the number of good windows before the next trial (4 at first, 1024 at most; OnTenantsChanged()
// forgets it). So for a stationary load reversals become rare exponentially and the throttle level stays within one
// step; a jump of the load is answered within seven windows, whatever its size.
//
// Not thread-safe. No clock, no allocation; constant time per latency, but for the end of a window.
#pragma once

#include <cstdint>

#include "scheduler/latency_histogram.h"
#include "scheduler/slo.h"
#include "scheduler/tuning.h"

namespace tally::scheduler {

class SloFeedback {
 public:
  struct Config {
    Slo slo;
    Tuning most_generous{.turnaround_threshold = std::chrono::microseconds(100),
                         .min_hold_off = std::chrono::microseconds(4),
                         .max_hold_off = std::chrono::microseconds(100),
                         .target_drain = std::chrono::microseconds(2500)};
    Tuning most_careful{.turnaround_threshold = std::chrono::microseconds(10),
                        .min_hold_off = std::chrono::microseconds(100),
                        .max_hold_off = std::chrono::microseconds(2500),
                        .target_drain = std::chrono::microseconds(100)};
  };

  explicit SloFeedback(const Config& config);

  // A high-priority request took so long, from its arrival to its end. Returns whether tuning() changed.
  bool OnLatency(std::chrono::nanoseconds latency);
  // What was learned about how generous one may be is out of date.
  void OnTenantsChanged() { good_windows_wanted_ = kLeastGoodWindows; }

  Tuning tuning() const { return TuningAt(config_, throttle_level_); }
  double throttle_level() const { return static_cast<double>(throttle_level_) / kSteps; }
  int throttle_steps() const { return throttle_level_; }
  uint64_t window() const { return window_; }
  // What the last window had at the objective's percentile; zero before its end.
  std::chrono::nanoseconds last_quantile() const { return last_quantile_; }

  // Throttle level in steps, for whoever compares that of several programs.
  static constexpr int kSteps = 32;
  static constexpr int kFirstStep = kSteps / 2;
  static Tuning TuningAt(const Config& config, int steps);

 private:
  static constexpr int kLargestStep = 8;
  static constexpr uint32_t kLeastGoodWindows = 4;
  static constexpr uint32_t kMostGoodWindows = 1024;
  static constexpr double kHeadroom = 0.7;

  int Change(std::chrono::nanoseconds quantile);

  const Config config_;
  const uint64_t window_;
  LatencyHistogram latencies_;  // of this window
  int throttle_level_ = kFirstStep;
  std::chrono::nanoseconds last_quantile_{0};
  int step_ = 1;           // of the next move to a higher throttle level
  bool is_trial_ = false;  // the last move was to a lower throttle level, and nothing has shown yet that it was wrong
  uint32_t num_good_windows_ = 0;  // in a row
  uint32_t good_windows_wanted_ = kLeastGoodWindows;
};

}  // namespace tally::scheduler
