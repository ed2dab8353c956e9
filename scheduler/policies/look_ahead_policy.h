// `look-ahead`: strict priority between the classes; of best-effort launches as many as have lately drained quickly.
//
//   admission         closed while high-priority work is there, and for the adaptive hold-off after it (HoldOffRule)
//   in flight         everything that can yield, which is told to when high-priority work comes; of short launches
//                     (LaunchAsked::is_short) what drains within the turnaround threshold (DrainBudget); of all others
//                     as many as have lately drained within `target_drain` (LookAhead). None counts for the others
//   descheduling      where it is expected nobody waits for what is in flight, and none of that is bounded. But a
//                     tenant may only be some launches ahead
//   longest wait      what has waited for room for so long goes all the same: a kernel may itself wait for one that is
//                     yet to be launched
//   starvation bound  off unless set. What has waited so long gets through although admission is closed: the one that
//                     has waited longest, one launch per bound
//
// Best-effort tenants take turns; levels and weights mean nothing. A best-effort launch may delay a high-priority one
// by what is in flight: that is steered by how long launches took, not by what those in flight will take, so after a
// change of kernels it may be several times `target_drain`.
//
// Where descheduling is expected a decision may cost the number of tenants that wait; otherwise constant time.
//
// Source: Tally's priority-aware scheduling at kernel granularity (section 4; the "scheduling without transformation"
// of its ablation), with more than one launch in flight.
#pragma once

#include <vector>

#include "scheduler/drain_budget.h"
#include "scheduler/hold_off_rule.h"
#include "scheduler/look_ahead.h"
#include "scheduler/policy.h"
#include "scheduler/tenant_rings.h"
#include "scheduler/yield_requests.h"

namespace tally::scheduler {

class LookAheadPolicy final : public Policy {
 public:
  // Where descheduling is expected: one launch in so many asks, and so many of these may be in flight of one tenant.
  //
  // The driver's ring of a GPU channel holds about a thousand. A thread that finds it full stays in the driver and
  // keeps its processor busy until there is room, which is long if the context is descheduled meanwhile; a few such
  // threads leave those of high-priority programs too few processors. So a tenant stops before, and its thread sleeps.
  static constexpr uint32_t kLaunchesPerAsking = 128;
  static constexpr uint32_t kMostAsked = 4;

  explicit LookAheadPolicy(const PolicyConfig& config);

  void OnHighPriorityElsewhere(bool is_busy, TimePoint opens_at, TimePoint now) override;
  void ExpectDescheduling(bool is_expected) override { is_descheduling_expected_ = is_expected; }
  void Tune(const Tuning& tuning) override;
  std::optional<Decision> Next(TimePoint now) override;
  std::optional<TimePoint> WakeAt(TimePoint now) const override;

 private:
  // What a tenant's first waiting launch waits for.
  enum Ring : size_t { kHighPriority, kYielding, kShort, kOthers, kNumRings };
  struct Waiting {
    Ring ring = kOthers;
    uint64_t head = 0;  // LaunchBook::Launch::sequence
    TimePoint since{};  // when it became the first
  };

  void OnBacklogged(uint32_t tenant, TimePoint now) override;
  void OnDrained(uint32_t tenant, TimePoint now) override;
  void OnHeadChanged(uint32_t tenant, TimePoint now) override;
  void OnEnded(const Launch& launch, Nanoseconds gpu_time, TimePoint now) override;

  void Join(uint32_t tenant, TimePoint now);
  void Leave(uint32_t tenant);
  bool IsHighPriorityHere() const { return num_high_in_flight_ != 0 || !waiting_.empty(kHighPriority); }
  // Tells the rule when that changed.
  void UpdateGate(TimePoint now);
  // When best-effort launches may go; nothing while high-priority work is there.
  std::optional<TimePoint> OpensAt() const;
  // When the starvation bound lets the next one go, if there is a bound.
  std::optional<TimePoint> StarvedAt() const;
  // When the one that has waited longest goes without room, given when admission opened.
  TimePoint GivesUpAt(TimePoint opened_at) const;

  bool HasRoom(uint32_t tenant, TimePoint now) const;
  // The ring's next tenant that has room; the ring's front from then on.
  std::optional<uint32_t> NextWithRoom(Ring ring, TimePoint now);
  Decision Let(uint32_t tenant, TimePoint now, bool must_run_through = false);

  const std::optional<Nanoseconds> starvation_bound_;
  const Nanoseconds longest_wait_;
  TenantRings waiting_{kNumRings};
  TenantRings longest_first_{1};       // best-effort tenants of waiting_, by Waiting::since
  std::vector<Waiting> first_launch_;  // by tenant

  uint32_t num_high_in_flight_ = 0;
  bool is_busy_elsewhere_ = false;
  TimePoint elsewhere_opens_at_{};
  bool was_here_ = false;  // as the rule was last told
  HoldOffRule hold_off_rule_;

  YieldRequests yields_;
  DrainBudget short_ones_;
  LookAhead others_;
  bool is_descheduling_expected_ = false;
  TimePoint last_grant_{};  // by the starvation bound
};

}  // namespace tally::scheduler
