#include "scheduler/hold_off_rule.h"

#include <algorithm>

namespace tally::scheduler {
namespace {

// A gap twice as long as the usual one is still inside the request.
constexpr int kGapMargin = 2;
// The newest gap moves the hold-off by 1/8 of the difference: a changed program is followed within a few dozen
// launches.
constexpr int kSmoothing = 8;

}  // namespace

void HoldOffRule::OnHighPriorityBusy(TimePoint now) {
  if (is_busy_) return;
  is_busy_ = true;
  if (was_ever_busy_) {
    const auto gap = now - idle_since_;
    if (gap <= config_.longest_gap_inside_request) {
      const auto wanted = gap * kGapMargin;
      hold_off_ = std::clamp(hold_off_ + (wanted - hold_off_) / kSmoothing, config_.min_hold_off, config_.max_hold_off);
    }
  }
  was_ever_busy_ = true;
}

void HoldOffRule::OnHighPriorityIdle(TimePoint now) {
  if (!is_busy_) return;
  is_busy_ = false;
  idle_since_ = now;
}

std::optional<TimePoint> HoldOffRule::OpensAt() const {
  if (is_busy_) return std::nullopt;
  if (!was_ever_busy_) return TimePoint{};
  return idle_since_ + hold_off_;
}

void HoldOffRule::SetHoldOffBounds(std::chrono::nanoseconds min_hold_off, std::chrono::nanoseconds max_hold_off) {
  config_.min_hold_off = std::min(min_hold_off, max_hold_off);
  config_.max_hold_off = max_hold_off;
  hold_off_ = std::clamp(hold_off_, config_.min_hold_off, config_.max_hold_off);
}

bool HoldOffRule::IsOpen(TimePoint now) const {
  const auto opens_at = OpensAt();
  return opens_at && *opens_at <= now;
}

}  // namespace tally::scheduler
