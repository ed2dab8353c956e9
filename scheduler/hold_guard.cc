#include "scheduler/hold_guard.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tally::scheduler {
namespace {

// What a round weighs when its way has another one.
constexpr double kMemoryOfRounds = 0.9;
constexpr double kLeastGain = 0.01;
constexpr double kStandardErrors = 2;
constexpr double kStandardErrorsOfSurprise = 4;

}  // namespace

void HoldGuard::Moments::Add(double number, double memory) {
  weight = weight * memory + 1;
  sum = sum * memory + number;
  sum_of_squares = sum_of_squares * memory + number * number;
}

double HoldGuard::Moments::SquaredError() const {
  const double variance = std::max(0.0, sum_of_squares / weight - Mean() * Mean());
  return variance / std::max(weight - 1, 1.0);
}

bool HoldGuard::IsHoldingBetter() const {
  const Moments &without = rounds_[0], &with = rounds_[1];
  if (without.weight < 2 || with.weight < 2) return false;
  const double error = std::sqrt(without.SquaredError() + with.SquaredError());
  return without.Mean() - with.Mean() > std::max(kLeastGain, kStandardErrors * error);
}

bool HoldGuard::IsSurprise() const {
  if (num_rounds_ <= kRoundsOfTrial || holds_ == prefers_holding_) return false;
  const double error = std::sqrt(round_before_.SquaredError() + round_.SquaredError());
  return round_before_.Mean() - round_.Mean() > std::max(kLeastGain, kStandardErrorsOfSurprise * error);
}

void HoldGuard::EndRound() {
  ++num_rounds_;
  if (IsSurprise()) {
    num_rounds_ = 1;
    rounds_ = {};
  }
  rounds_[holds_ ? 1 : 0].Add(round_.Mean(), kMemoryOfRounds);
  round_before_ = std::exchange(round_, {});
  prefers_holding_ = IsHoldingBetter();
  if (num_rounds_ < kRoundsOfTrial) {
    holds_ = !holds_;
    return;
  }
  num_since_other_ = holds_ == prefers_holding_ ? num_since_other_ + 1 : 0;
  holds_ = num_since_other_ >= kRoundsBetween ? !prefers_holding_ : prefers_holding_;
}

void HoldGuard::OnRequest(std::chrono::nanoseconds took) {
  round_.Add(std::log(static_cast<double>(std::max<int64_t>(took.count(), 1000))));
  if (round_.weight == kRound) EndRound();
}

}  // namespace tally::scheduler
