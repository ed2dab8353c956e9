// Which times all executors work with, given what programs' objectives ask for (docs/scheduling.md).
#pragma once

#include <chrono>
#include <optional>

#include "scheduler/slo_feedback.h"

namespace tally::server {

// `throttle_level`: the most careful of the programs with an objective, in SloFeedback's steps; nothing: there is none.
// The turnaround threshold is moved by the same factor as the default one is: what the operator configured is the
// middle.
inline scheduler::Tuning TuningFor(std::optional<int> throttle_level, std::chrono::nanoseconds turnaround_threshold) {
  scheduler::Tuning tuning;
  if (throttle_level && *throttle_level != scheduler::SloFeedback::kFirstStep) {
    tuning = scheduler::SloFeedback::TuningAt({}, *throttle_level);
  }
  const double factor = static_cast<double>(tuning.turnaround_threshold.count()) /
                        static_cast<double>(scheduler::Tuning{}.turnaround_threshold.count());
  tuning.turnaround_threshold =
      std::chrono::nanoseconds(static_cast<int64_t>(factor * static_cast<double>(turnaround_threshold.count())));
  return tuning;
}

}  // namespace tally::server
