// `kernel-granular`: strict priority between the classes, decided between kernels only.
//
// High-priority launches go at once. A best-effort launch goes when no high-priority work is there and no other
// best-effort launch is in flight, in its original form, and runs to its end: the "scheduling without transformation"
// of Tally's ablation (Fig. 6b). Best-effort tenants take turns, launch by launch; levels and weights mean nothing.
#pragma once

#include "scheduler/drain_budget.h"
#include "scheduler/policy.h"
#include "scheduler/tenant_rings.h"
#include "scheduler/yield_requests.h"

namespace tally::scheduler {

class KernelGranularPolicy : public Policy {
 public:
  explicit KernelGranularPolicy(const PolicyConfig& config)
      : in_flight_(Nanoseconds(-1), Nanoseconds(0), config.longest_wait) {}

  void OnHighPriorityElsewhere(bool is_busy, TimePoint opens_at, TimePoint now) override;
  std::optional<Decision> Next(TimePoint now) override;
  std::optional<TimePoint> WakeAt(TimePoint now) const override;

 protected:
  bool IsHighPriorityPresent() const {
    return is_busy_elsewhere_ || num_high_in_flight_ != 0 || !waiting_.empty(kHighPriority);
  }
  YieldRequests yields_;

 private:
  static constexpr size_t kHighPriority = static_cast<size_t>(TenantClass::kHighPriority);
  static constexpr size_t kBestEffort = static_cast<size_t>(TenantClass::kBestEffort);

  size_t RingOf(uint32_t tenant) const { return static_cast<size_t>(book_.tenant(tenant).share.tenant_class); }
  void OnBacklogged(uint32_t tenant, TimePoint now) override;
  void OnDrained(uint32_t tenant, TimePoint now) override;
  void OnEnded(const Launch& launch, Nanoseconds gpu_time, TimePoint now) override;

  TenantRings waiting_{2};
  DrainBudget in_flight_;  // of best-effort tenants; with room for one
  uint32_t num_high_in_flight_ = 0;
  bool is_busy_elsewhere_ = false;
};

}  // namespace tally::scheduler
