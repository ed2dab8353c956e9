#include "server/executor/dispatch/gap_hold.h"

#include "base/log.h"

namespace tally::server {

void HoldChoice::OnRequest(std::chrono::nanoseconds took) {
  if (!is_allowed_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  guard_.OnRequest(took);
  guard_holds_.store(guard_.holds(), std::memory_order_relaxed);
  if (guard_.prefers_holding() == did_prefer_) return;
  did_prefer_ = guard_.prefers_holding();
  LOG_INFO("high-priority requests are {} with the GPU held in their gaps: it is {}",
           did_prefer_ ? "shorter" : "no shorter", did_prefer_ ? "held" : "not held");
}

void GapHold::WhileBusy(TimePoint now, bool has_come) {
  if (has_come) last_work_ = now;
  if (choice_.holds() && now - last_work_ < kLongestWithoutWork) {
    holder_.Keep();
  } else {
    holder_.Release();
  }
}

TimePoint GapHold::OnIdle(TimePoint now) {
  const auto hold = rule_.OnIdle(now);
  // What is not held by now has been turned away from.
  if (!holder_.is_holding()) return now;
  return choice_.holds() ? now + hold : now;
}

}  // namespace tally::server
