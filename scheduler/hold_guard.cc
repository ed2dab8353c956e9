#include "scheduler/hold_guard.h"

#include <algorithm>
#include <cmath>

namespace tally::scheduler {
namespace {

// What a round weighs when its way has another one.
constexpr double kMemoryOfRounds = 0.9;
constexpr double kLeastGain = 0.01;
constexpr double kStandardErrors = 2;

}  // namespace

void HoldGuard::Rounds::Add(double mean) {
  weight = weight * kMemoryOfRounds + 1;
  sum = sum * kMemoryOfRounds + mean;
  sum_of_squares = sum_of_squares * kMemoryOfRounds + mean * mean;
}

double HoldGuard::Rounds::SquaredError() const {
  const double variance = std::max(0.0, sum_of_squares / weight - Mean() * Mean());
  return variance / std::max(weight - 1, 1.0);
}

bool HoldGuard::IsHoldingBetter() const {
  const Rounds &without = rounds_[0], &with = rounds_[1];
  if (without.weight < 2 || with.weight < 2) return false;
  const double error = std::sqrt(without.SquaredError() + with.SquaredError());
  return without.Mean() - with.Mean() > std::max(kLeastGain, kStandardErrors * error);
}

void HoldGuard::EndRound() {
  rounds_[holds_ ? 1 : 0].Add(sum_of_logs_ / kRound);
  num_requests_ = 0;
  sum_of_logs_ = 0;
  prefers_holding_ = IsHoldingBetter();
  ++num_rounds_;
  if (num_rounds_ < kRoundsOfTrial) {
    holds_ = !holds_;
    return;
  }
  num_since_other_ = holds_ == prefers_holding_ ? num_since_other_ + 1 : 0;
  holds_ = num_since_other_ >= kRoundsBetween ? !prefers_holding_ : prefers_holding_;
}

void HoldGuard::OnRequest(std::chrono::nanoseconds took) {
  sum_of_logs_ += std::log(static_cast<double>(std::max<int64_t>(took.count(), 1000)));
  if (++num_requests_ == kRound) EndRound();
}

}  // namespace tally::scheduler
