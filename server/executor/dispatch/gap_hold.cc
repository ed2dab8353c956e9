#include "server/executor/dispatch/gap_hold.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "server/executor/driver/driver_libraries.h"

namespace tally::server {

using control::Figure;

void HoldChoice::OnRequest(std::chrono::nanoseconds took, FigureCounters& figures) {
  const std::lock_guard lock(mutex_);
  figures.Add(guard_.holds() ? Figure("requests_gaps_held") : Figure("requests_gaps_open"));
  figures.Add(guard_.holds() ? Figure("requests_gaps_held_ns") : Figure("requests_gaps_open_ns"), took);
  const bool did_prefer = guard_.prefers_holding();
  guard_.OnRequest(took);
  figures.Set("prefers_holding", guard_.prefers_holding() ? 1 : 0);
  holds_.store(guard_.holds(), std::memory_order_relaxed);
  if (guard_.prefers_holding() == did_prefer || num_said_ == kMostSaid) return;
  ++num_said_;
  LOG_INFO("high-priority requests are {} with the GPU held in their gaps: it is {}",
           did_prefer ? "no shorter" : "shorter", did_prefer ? "not held" : "held");
}

bool GapHold::Open() {
  const CUresult loaded = kernels_.Load();
  if (loaded != CUDA_SUCCESS) LOG_WARNING("the GPU is not held in gaps: {}", CudaErrorName(driver_, loaded));
  return loaded == CUDA_SUCCESS;
}

void GapHold::WhileBusy(TimePoint now, bool has_come, bool may_hold) {
  if (has_come) last_work_ = now;
  if (may_hold && now - last_work_ < kLongestWithoutWork) {
    kernels_.Keep(kQueue);
  } else {
    kernels_.Release();
  }
}

GapHold::Gap GapHold::Begin(TimePoint now, bool may_hold, bool is_wanted) {
  const bool is_by_guard = rule_.would_hold() && !is_wanted;
  return {now, now + rule_.OnIdle(now, may_hold), is_by_guard};
}

TimePoint GapHold::OnIdle(TimePoint now, bool is_allowed, bool is_wanted) {
  // What is not held by now has been turned away from.
  const Gap gap = Begin(now, is_allowed && is_wanted && kernels_.is_holding(), is_wanted);
  if (is_allowed) gap_ = gap;
  return gap.held_until;
}

void GapHold::OnUnseenGap(TimePoint now, bool is_allowed, bool is_wanted, FigureCounters& figures) {
  const Gap gap = Begin(now, is_allowed && is_wanted, is_wanted);
  rule_.OnBusy(now);
  if (is_allowed) Count(gap, now, figures);
}

void GapHold::OnBusy(TimePoint now, FigureCounters& figures) {
  rule_.OnBusy(now);
  if (const std::optional<Gap> gap = std::exchange(gap_, std::nullopt)) Count(*gap, now, figures);
}

void GapHold::Count(const Gap& gap, TimePoint end, FigureCounters& figures) {
  if (gap.held_until == gap.since) {
    figures.Add(gap.is_by_guard ? Figure("gaps_by_guard") : Figure("gaps_by_rule"));
    return;
  }
  figures.Add(end <= gap.held_until ? Figure("gaps_hit") : Figure("gaps_late"));
  figures.Add("gap_hold_ns", std::clamp(end, gap.since, gap.held_until) - gap.since);
}

}  // namespace tally::server
