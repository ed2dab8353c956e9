// `fair`: GPU time in proportion to weights among all tenants, and nothing else: class and level mean nothing.
#pragma once

#include "scheduler/drain_budget.h"
#include "scheduler/fair_queue.h"
#include "scheduler/policy.h"

namespace tally::scheduler {

class FairPolicy final : public Policy {
 public:
  explicit FairPolicy(const PolicyConfig& config)
      : queue_({config.fair_quantum, config.expects_back}),
        in_flight_(config.tuning.target_drain, config.tuning.turnaround_threshold, config.longest_wait) {}

  void Tune(const Tuning& tuning) override { in_flight_.Set(tuning.target_drain, tuning.turnaround_threshold); }
  std::optional<Decision> Next(TimePoint now) override;
  std::optional<TimePoint> WakeAt(TimePoint now) const override;

 private:
  void OnAdded(uint32_t tenant) override;
  void OnRemoved(uint32_t tenant) override { queue_.Remove(tenant); }
  void OnWeightChanged(uint32_t tenant) override { queue_.SetWeight(tenant, book_.tenant(tenant).share.weight); }
  void OnBacklogged(uint32_t tenant, TimePoint) override { queue_.Join(tenant); }
  void OnDrained(uint32_t tenant, TimePoint now) override { queue_.RunOut(tenant, now); }
  void OnEnded(const Launch& launch, Nanoseconds gpu_time, TimePoint now) override;

  FairQueue queue_;
  DrainBudget in_flight_;
};

}  // namespace tally::scheduler
