#include "server/executor/issue/preemptibility_meter.h"

namespace tally::server {

void PreemptibilityMeter::Add(Preemptibility preemptibility, std::chrono::nanoseconds duration, uint64_t num_launches) {
  times_ns_[static_cast<size_t>(preemptibility)].fetch_add(duration.count() * static_cast<int64_t>(num_launches),
                                                           std::memory_order_relaxed);
}

void PreemptibilityMeter::Count(uint64_t kind, Preemptibility preemptibility, std::chrono::nanoseconds duration) {
  if (duration <= duration.zero()) {
    const auto found = unknown_.find(kind);
    if (found == unknown_.end() && unknown_.size() >= kMostUnknown) return;
    ++unknown_[kind][static_cast<size_t>(preemptibility)];
    return;
  }
  Add(preemptibility, duration, 1);
  if (unknown_.empty()) return;
  const auto found = unknown_.find(kind);
  if (found == unknown_.end()) return;
  for (size_t i = 0; i < control::kNumPreemptibilities; ++i)
    Add(static_cast<Preemptibility>(i), duration, found->second[i]);
  unknown_.erase(found);
}

TimesByPreemptibility PreemptibilityMeter::Figures() const {
  TimesByPreemptibility times;
  for (size_t i = 0; i < control::kNumPreemptibilities; ++i) {
    times[i] = std::chrono::nanoseconds(times_ns_[i].load(std::memory_order_relaxed));
  }
  return times;
}

PreemptibilityMeter::Timed::Timed(PreemptibilityMeter& meter, int device, CUstream stream, uint64_t kind,
                                  Preemptibility preemptibility)
    : meter_(meter), stream_(stream), kind_(kind), preemptibility_(preemptibility) {
  if (meter.watch_ == nullptr) return;
  auto& costs = meter.costs_[device];
  if (costs == nullptr)
    costs = std::make_unique<LaunchCosts>(meter.devices_->completions(device), device, *meter.watch_);
  costs_ = costs.get();
  cost_ = &costs_->Of(kind);
  sample_ = costs_->Begin(*cost_, stream);
}

PreemptibilityMeter::Timed::~Timed() {
  if (costs_ == nullptr) return;
  costs_->End(sample_, stream_);
  meter_.Count(kind_, preemptibility_, cost_->duration());
}

}  // namespace tally::server
