#include "scheduler/hold_rule.h"

#include <algorithm>
#include <numbers>

namespace tally::scheduler {
namespace {

// Of a gap when the next one comes: what a service did 200 gaps ago counts a third.
constexpr double kMemory = 1 - 1.0 / 200;
// A hold must have been cheaper than none by this part, so that chance does not choose.
constexpr double kWorthwhile = 0.05;
constexpr double kShortestHoldNs = 20'000;
static_assert(HoldRule::kNumHolds / 2 < 31);

}  // namespace

HoldRule::Nanoseconds HoldRule::HoldAt(size_t index) {
  if (index == 0) return Nanoseconds(0);
  // Asked for sixteen of them at each busy period's beginning.
  const double times = (index - 1) % 2 == 0 ? 1 : std::numbers::sqrt2;
  return Nanoseconds(static_cast<int64_t>(kShortestHoldNs * times * static_cast<double>(1 << (index - 1) / 2)));
}

double HoldRule::Cost(const Config& config, double weight, Nanoseconds hold, Nanoseconds gap) {
  const double usable = std::max(0.0, Count(gap - config.loss));
  if (hold.count() != 0 && gap <= hold) return usable;
  return weight * Count(config.switch_time) + usable - std::max(0.0, Count(gap - hold - config.loss));
}

size_t HoldRule::Cheapest() const {
  const auto best = static_cast<size_t>(std::min_element(costs_.begin(), costs_.end()) - costs_.begin());
  return costs_[best] < costs_[0] * (1 - kWorthwhile) ? best : 0;
}

double HoldRule::weight() const {
  const double load = all_ns_ > 0 ? std::min(busy_ns_ / all_ns_, kHighestLoad) : 0;
  return config_.weight / (1 - load);
}

HoldRule::Nanoseconds HoldRule::OnIdle(TimePoint now, bool may_hold) {
  chosen_ = may_hold && purse_ns_ > 0 ? Cheapest() : 0;
  is_idle_ = true;
  idle_since_ = now;
  return HoldAt(chosen_);
}

void HoldRule::OnBusy(TimePoint now) {
  if (!is_idle_) return;
  is_idle_ = false;
  const auto busy = busy_since_ == TimePoint{} ? Nanoseconds(0) : idle_since_ - busy_since_, gap = now - idle_since_;
  busy_since_ = now;
  if (gap < gap.zero() || busy < busy.zero()) return;  // a clock that went back
  const double busy_ns = Count(std::min<Nanoseconds>(busy, kLongestCounted));
  busy_ns_ = busy_ns_ * kMemory + busy_ns;
  all_ns_ = all_ns_ * kMemory + busy_ns + Count(std::min<Nanoseconds>(gap, kLongestCounted));
  const double weight = this->weight();
  double paid = 0;
  for (size_t i = 0; i < kNumHolds; ++i) {
    const double cost = Cost(config_, weight, HoldAt(i), gap);
    costs_[i] = costs_[i] * kMemory + cost;
    if (i == 0) paid += cost;
    if (i == chosen_) paid -= cost;
  }
  if (now > paid_until_) {
    if (paid_until_ != TimePoint{}) paid += config_.tithe * Count(now - paid_until_);
    paid_until_ = now;
  }
  purse_ns_ = std::min(purse_ns_ + paid, Count(config_.purse));
}

}  // namespace tally::scheduler
