#include "scheduler/slo_feedback.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tally::scheduler {
namespace {

using Nanoseconds = std::chrono::nanoseconds;

Nanoseconds Between(Nanoseconds generous, Nanoseconds careful, double throttle_level) {
  const auto from = static_cast<double>(generous.count());
  return Nanoseconds(std::llround(from * std::pow(static_cast<double>(careful.count()) / from, throttle_level)));
}

uint64_t WindowFor(double percentile) {
  return std::max<uint64_t>(200, static_cast<uint64_t>(std::round(2 / (1 - percentile / 100))));
}

}  // namespace

SloFeedback::SloFeedback(const Config& config) : config_(config), window_(WindowFor(config.slo.percentile)) {}

bool SloFeedback::OnLatency(Nanoseconds latency) {
  latencies_.Add(latency);
  if (latencies_.num() < window_) return false;
  last_quantile_ = latencies_.Quantile(config_.slo.percentile);
  const int throttle_level = std::clamp(throttle_level_ + Change(last_quantile_), 0, kSteps);
  latencies_.Clear();
  return std::exchange(throttle_level_, throttle_level) != throttle_level;
}

// By how much the throttle level should change after a window.
int SloFeedback::Change(Nanoseconds quantile) {
  if (quantile > config_.slo.latency) {
    num_good_windows_ = 0;
    if (is_trial_) good_windows_wanted_ = std::min(good_windows_wanted_ * 2, kMostGoodWindows);
    is_trial_ = false;
    return std::exchange(step_, std::min(step_ * 2, kLargestStep));
  }
  step_ = 1;
  const auto good = static_cast<double>(config_.slo.latency.count()) * kHeadroom;
  if (static_cast<double>(quantile.count()) > good) {
    num_good_windows_ = 0;
    return 0;
  }
  if (++num_good_windows_ < good_windows_wanted_ || throttle_level_ == 0) return 0;
  num_good_windows_ = 0;
  // The trial before this one went well.
  if (is_trial_) good_windows_wanted_ = std::max(good_windows_wanted_ / 2, kLeastGoodWindows);
  is_trial_ = true;
  return -1;
}

Tuning SloFeedback::TuningAt(const Config& config, int steps) {
  const Tuning& from = config.most_generous;
  const Tuning& to = config.most_careful;
  const double at = static_cast<double>(steps) / kSteps;
  return {.turnaround_threshold = Between(from.turnaround_threshold, to.turnaround_threshold, at),
          .min_hold_off = Between(from.min_hold_off, to.min_hold_off, at),
          .max_hold_off = Between(from.max_hold_off, to.max_hold_off, at),
          .target_drain = Between(from.target_drain, to.target_drain, at)};
}

}  // namespace tally::scheduler
