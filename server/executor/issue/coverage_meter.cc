#include "server/executor/issue/coverage_meter.h"

namespace tally::server {

void CoverageMeter::Add(Coverage coverage, std::chrono::nanoseconds duration, uint64_t num_launches) {
  times_ns_[static_cast<size_t>(coverage)].fetch_add(duration.count() * static_cast<int64_t>(num_launches),
                                                     std::memory_order_relaxed);
}

void CoverageMeter::Count(uint64_t kind, Coverage coverage, std::chrono::nanoseconds duration) {
  if (duration <= duration.zero()) {
    const auto found = unknown_.find(kind);
    if (found == unknown_.end() && unknown_.size() >= kMostUnknown) return;
    ++unknown_[kind][static_cast<size_t>(coverage)];
    return;
  }
  Add(coverage, duration, 1);
  if (unknown_.empty()) return;
  const auto found = unknown_.find(kind);
  if (found == unknown_.end()) return;
  for (size_t i = 0; i < control::kNumCoverages; ++i) Add(static_cast<Coverage>(i), duration, found->second[i]);
  unknown_.erase(found);
}

CoveredTimes CoverageMeter::Figures() const {
  CoveredTimes times;
  for (size_t i = 0; i < control::kNumCoverages; ++i) {
    times[i] = std::chrono::nanoseconds(times_ns_[i].load(std::memory_order_relaxed));
  }
  return times;
}

CoverageMeter::Timed::Timed(CoverageMeter& meter, int device, CUstream stream, uint64_t kind, Coverage coverage)
    : meter_(meter), stream_(stream), kind_(kind), coverage_(coverage) {
  if (meter.watch_ == nullptr) return;
  auto& costs = meter.costs_[device];
  if (costs == nullptr)
    costs = std::make_unique<LaunchCosts>(meter.devices_->completions(device), device, *meter.watch_);
  costs_ = costs.get();
  cost_ = &costs_->Of(kind);
  sample_ = costs_->Begin(*cost_, stream);
}

CoverageMeter::Timed::~Timed() {
  if (costs_ == nullptr) return;
  costs_->End(sample_, stream_);
  meter_.Count(kind_, coverage_, cost_->duration());
}

}  // namespace tally::server
