#include "scheduler/hold_guard.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tally::scheduler {
namespace {

constexpr double kMemoryOfGains = 0.9;  // of a comparison when the next one comes
constexpr double kLeastWeight = 3;      // of comparisons
constexpr double kLeastGain = 0.01;
constexpr double kMostGain = 0.5;
constexpr double kStandardErrors = 2;         // for which a way is preferred
constexpr double kStandardErrorsOfKnown = 4;  // and not looked at often any more
constexpr double kOtherLength = 0.1;          // of a round, as a logarithm

}  // namespace

void HoldGuard::Gains::Add(double gain) {
  weight = weight * kMemoryOfGains + 1;
  sum = sum * kMemoryOfGains + gain;
  sum_of_squares = sum_of_squares * kMemoryOfGains + gain * gain;
}

double HoldGuard::Gains::Error() const {
  const double variance = std::max(0.0, sum_of_squares / weight - Mean() * Mean());
  return std::sqrt(variance / std::max(weight - 1, 1.0));
}

bool HoldGuard::IsCertain(double standard_errors) const {
  return gains_.weight >= kLeastWeight &&
         std::fabs(gains_.Mean()) > std::max(kLeastGain, standard_errors * gains_.Error());
}

void HoldGuard::Compare(double log_ns) {
  const double gain = std::clamp(holds_ ? log_ns_before_ - log_ns : log_ns - log_ns_before_, -kMostGain, kMostGain);
  if (!is_second_) {
    first_gain_ = gain;
    is_second_ = true;
    return;
  }
  is_second_ = false;
  const double mean = (first_gain_ + gain) / 2;
  gains_.Add(mean);
  prefers_holding_ = gains_.Mean() > 0 && IsCertain(kStandardErrors);
  if (num_turns_left_ == 0 || --num_turns_left_ != 0) return;
  BeginTurns((mean > kLeastGain) == prefers_holding_ ? 0 : 1);
}

void HoldGuard::BeginTurns(uint32_t num_turns) {
  num_turns_left_ = num_turns;
  num_rounds_ = 0;
  is_second_ = false;
}

void HoldGuard::CountRound(double log_ns) {
  if (num_rounds_ == 0) log_ns_of_first_ = log_ns;
  const bool is_known = IsCertain(kStandardErrorsOfKnown);
  const bool is_other = std::fabs(log_ns - log_ns_of_first_) > kOtherLength;
  num_rounds_ += is_known && is_other ? kRoundsBetweenKnown / kRoundsBetween : 1;
  if (num_rounds_ > (is_known ? kRoundsBetweenKnown : kRoundsBetween)) BeginTurns(1);
}

void HoldGuard::EndRound() {
  const double log_ns = std::exchange(log_ns_, 0) / kRound;
  num_requests_ = 0;
  if (num_turns_left_ == 0) CountRound(log_ns);
  if (is_other_before_) Compare(log_ns);
  log_ns_before_ = log_ns;
  const bool did_hold = holds_;
  holds_ = num_turns_left_ != 0 ? !did_hold : prefers_holding_;
  is_other_before_ = holds_ != did_hold;
}

void HoldGuard::OnRequest(std::chrono::nanoseconds took) {
  log_ns_ += std::log(static_cast<double>(std::max<int64_t>(took.count(), 1000)));
  if (++num_requests_ == kRound) EndRound();
}

}  // namespace tally::scheduler
