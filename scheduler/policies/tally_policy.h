// `tally`: our own policy.
//
//   between classes    strict: best-effort launches go only while admission is open, that is when no high-priority work
//   is
//                      there and the adaptive hold-off is over (HoldOffRule); those in flight that can yield are told
//                      to
//   between levels     strict: a high-priority launch goes when nothing of a higher level waits or runs. At the highest
//                      level that any tenant has, at once; below it, with no more in flight than drains in time
//   best-effort        by weight over measured GPU time (FairQueue); as many tenants in flight as fit on the GPU
//   together,
//                      and no more than drains in time (DrainBudget)
//   starvation bound   off unless set. Best-effort work that has waited so long gets one launch through, the tenants in
//                      turn: with n of them waiting, each is served within n bounds
//
// A best-effort launch may thus delay a high-priority one by what is in flight: `target_drain`, or one launch if that
// is longer and cannot yield (estimates being right); with a starvation bound one launch more, at most once per bound.
#pragma once

#include <array>

#include "scheduler/drain_budget.h"
#include "scheduler/fair_queue.h"
#include "scheduler/hold_off_rule.h"
#include "scheduler/policy.h"
#include "scheduler/tenant_rings.h"
#include "scheduler/yield_requests.h"

namespace tally::scheduler {

class TallyPolicy : public Policy {
 public:
  explicit TallyPolicy(const PolicyConfig& config);

  void OnHighPriorityElsewhere(bool is_busy, TimePoint opens_at, TimePoint now) override;
  void Tune(const Tuning& tuning) override;
  std::optional<Decision> Next(TimePoint now) override;
  std::optional<TimePoint> WakeAt(TimePoint now) const override;

  Nanoseconds hold_off() const { return hold_off_rule_.hold_off(); }

 private:
  void OnAdded(uint32_t tenant) override;
  void OnRemoved(uint32_t tenant) override;
  void OnWeightChanged(uint32_t tenant) override;
  void OnBacklogged(uint32_t tenant, TimePoint now) override;
  void OnDrained(uint32_t tenant, TimePoint now) override;
  void OnHeadChanged(uint32_t tenant, TimePoint now) override;
  void OnEnded(const Launch& launch, Nanoseconds gpu_time, TimePoint now) override;

  bool IsHighPriorityPresent() const { return is_busy_elsewhere_ || waiting_levels_ != 0 || in_flight_levels_ != 0; }
  // Tells the rule when that changed.
  void UpdateGate(TimePoint now);
  // When best-effort launches may go; nothing while high-priority work is there.
  std::optional<TimePoint> OpensAt() const;
  // When the starvation bound lets one go; nothing if there is no bound or one is in flight already.
  std::optional<TimePoint> StarvedAt() const;

  std::optional<Decision> NextHighPriority(TimePoint now);
  std::optional<Decision> NextBestEffort(TimePoint now);
  // Of those whose turn it is in this round of the fair queue: one that fits beside what is in flight, if there is one
  // among the first few, else the first who has something to launch. Nobody if all that have are of later rounds. So
  // tenants that do not fill the GPU run together rather than between others.
  std::optional<uint32_t> PickByWeight(TimePoint now);

  const std::optional<Nanoseconds> starvation_bound_;

  // High-priority class. Bits are levels.
  TenantRings waiting_{kNumLevels};
  std::array<uint32_t, kNumLevels> num_tenants_{};
  std::array<uint32_t, kNumLevels> num_in_flight_{};
  uint32_t tenant_levels_ = 0;
  uint32_t waiting_levels_ = 0;
  uint32_t in_flight_levels_ = 0;
  DrainBudget lower_levels_;  // launches in flight below the highest level
  bool is_busy_elsewhere_ = false;
  TimePoint elsewhere_opens_at_{};
  bool was_present_ = false;  // as the rule was last told
  HoldOffRule hold_off_rule_;

  // Best-effort class.
  FairQueue fair_;
  // Best-effort tenants whose first launch has yielded. They come first: on their streams others may be in flight that
  // wait for it, and nothing else would be admitted meanwhile. What it costs is charged as everything is.
  TenantRings to_resume_{1};
  TenantRings in_turn_{1};  // those that have launches waiting, for the starvation bound
  DrainBudget in_flight_;
  YieldRequests yields_;
  TimePoint waiting_since_{};  // since best-effort work waits with none of it dispatched; while fair_ is not empty
  bool is_grant_in_flight_ = false;
};

}  // namespace tally::scheduler
