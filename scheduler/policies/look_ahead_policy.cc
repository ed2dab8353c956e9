#include "scheduler/policies/look_ahead_policy.h"

#include <algorithm>

namespace tally::scheduler {
namespace {

// All that is counted there is short, so the bound for short ones decides.
constexpr Nanoseconds kNoOtherBound = std::chrono::hours(1);

}  // namespace

LookAheadPolicy::LookAheadPolicy(const PolicyConfig& config)
    : starvation_bound_(config.starvation_bound),
      longest_wait_(config.longest_wait),
      hold_off_rule_({.min_hold_off = config.tuning.min_hold_off, .max_hold_off = config.tuning.max_hold_off}),
      short_ones_(kNoOtherBound, config.tuning.turnaround_threshold, config.longest_wait),
      others_({.target_drain = config.tuning.target_drain}) {}

void LookAheadPolicy::Tune(const Tuning& tuning) {
  hold_off_rule_.SetHoldOffBounds(tuning.min_hold_off, tuning.max_hold_off);
  short_ones_.Set(kNoOtherBound, tuning.turnaround_threshold);
  others_.SetTargetDrain(tuning.target_drain);
}

void LookAheadPolicy::OnHighPriorityElsewhere(bool is_busy, TimePoint opens_at, TimePoint) {
  is_busy_elsewhere_ = is_busy;
  if (!is_busy) elsewhere_opens_at_ = opens_at;
}

void LookAheadPolicy::OnBacklogged(uint32_t tenant, TimePoint now) {
  Join(tenant, now);
  UpdateGate(now);
}

void LookAheadPolicy::OnDrained(uint32_t tenant, TimePoint now) {
  Leave(tenant);
  UpdateGate(now);
}

void LookAheadPolicy::OnHeadChanged(uint32_t tenant, TimePoint now) {
  if (book_.tenant(tenant).num_waiting == 0 || first_launch_[tenant].head == book_.Head(tenant).sequence) return;
  Leave(tenant);
  Join(tenant, now);
}

void LookAheadPolicy::Join(uint32_t tenant, TimePoint now) {
  if (tenant >= first_launch_.size()) first_launch_.resize(tenant + 1);
  const Launch& head = book_.Head(tenant);
  Ring ring = head.asked.can_yield ? kYielding : head.asked.is_short ? kShort : kOthers;
  if (book_.tenant(tenant).share.tenant_class == TenantClass::kHighPriority) ring = kHighPriority;
  first_launch_[tenant] = {.ring = ring, .head = head.sequence, .since = now};
  waiting_.Join(ring, tenant);
  if (ring != kHighPriority) longest_first_.Join(0, tenant);
}

void LookAheadPolicy::Leave(uint32_t tenant) {
  const Ring ring = first_launch_[tenant].ring;
  waiting_.Leave(ring, tenant);
  if (ring != kHighPriority) longest_first_.Leave(0, tenant);
}

void LookAheadPolicy::UpdateGate(TimePoint now) {
  const bool is_here = IsHighPriorityHere();
  if (is_here == was_here_) return;
  was_here_ = is_here;
  is_here ? hold_off_rule_.OnHighPriorityBusy(now) : hold_off_rule_.OnHighPriorityIdle(now);
}

std::optional<TimePoint> LookAheadPolicy::OpensAt() const {
  const std::optional<TimePoint> opens_at = hold_off_rule_.OpensAt();
  if (is_busy_elsewhere_ || !opens_at) return std::nullopt;
  return std::max(*opens_at, elsewhere_opens_at_);
}

std::optional<TimePoint> LookAheadPolicy::StarvedAt() const {
  if (!starvation_bound_) return std::nullopt;
  return std::max(first_launch_[longest_first_.Front(0)].since, last_grant_) + *starvation_bound_;
}

TimePoint LookAheadPolicy::GivesUpAt(TimePoint opened_at) const {
  return std::max(first_launch_[longest_first_.Front(0)].since, opened_at) + longest_wait_;
}

std::optional<Decision> LookAheadPolicy::Next(TimePoint now) {
  // First of all: it takes the GPU longer to give back than us to launch.
  if (yields_.any_to_ask() && (is_busy_elsewhere_ || IsHighPriorityHere())) {
    yields_.OnAsked();
    return Decision{.kind = Decision::Kind::kYield, .tenant = {}, .launch = {}};
  }
  if (const std::optional<uint32_t> tenant = NextHighPriorityTenant(waiting_, kHighPriority)) {
    ++num_high_in_flight_;  // before it stops waiting, so that the class is never seen absent in between
    return Dispatch(*tenant, TenantClass::kHighPriority, now);
  }
  if (longest_first_.empty(0)) return std::nullopt;
  const uint32_t longest = longest_first_.Front(0);
  const std::optional<TimePoint> opens_at = OpensAt();
  if (!opens_at || *opens_at > now) {
    const std::optional<TimePoint> starved_at = StarvedAt();
    if (!starved_at || *starved_at > now) return std::nullopt;
    last_grant_ = now;
    return Let(longest, now, /*must_run_through=*/true);
  }
  if (GivesUpAt(*opens_at) <= now) {
    const bool is_forced = !HasRoom(longest, now);
    if (is_forced && first_launch_[longest].ring == kOthers && !is_descheduling_expected_)
      others_.GiveUp(longest_wait_);
    Decision decision = Let(longest, now);
    decision.is_forced = is_forced;
    return decision;
  }
  for (const Ring ring : {kYielding, kShort, kOthers}) {
    if (const std::optional<uint32_t> tenant = NextWithRoom(ring, now)) return Let(*tenant, now);
  }
  return std::nullopt;
}

bool LookAheadPolicy::HasRoom(uint32_t tenant, TimePoint now) const {
  const Ring ring = first_launch_[tenant].ring;
  if (ring == kYielding) return true;
  if (is_descheduling_expected_) return book_.tenant(tenant).num_best_effort_in_flight < kMostAsked;
  if (ring == kShort) return short_ones_.Admits(book_.IdOf(tenant), book_.Head(tenant).asked, now);
  return others_.HasRoom();
}

std::optional<uint32_t> LookAheadPolicy::NextWithRoom(Ring ring, TimePoint now) {
  if (waiting_.empty(ring)) return std::nullopt;
  const uint32_t first = waiting_.Front(ring);
  do {
    const uint32_t tenant = waiting_.Front(ring);
    if (HasRoom(tenant, now)) return tenant;
    // They share the room: who needs less of it must not go before for ever. Where descheduling is expected, each has
    // its own.
    if (!is_descheduling_expected_) return std::nullopt;
    waiting_.Advance(ring);
  } while (waiting_.Front(ring) != first);
  return std::nullopt;
}

Decision LookAheadPolicy::Let(uint32_t tenant, TimePoint now, bool must_run_through) {
  Decision decision = Dispatch(tenant, TenantClass::kBestEffort, now);
  decision.run_through = must_run_through;
  Launch& launch = book_.launch(decision.launch);
  if (must_run_through) launch.asked.can_yield = false;
  launch.dispatched_at = now;
  launch.is_ahead = is_descheduling_expected_;
  yields_.OnDispatched(launch, launch.asked.can_yield);
  if (launch.asked.can_yield) return decision;
  if (launch.is_ahead) {
    decision.num_unasked = kLaunchesPerAsking - 1;
  } else if (launch.asked.is_short) {
    launch.counted = short_ones_.OnDispatched(decision.tenant, launch.asked, now);
  } else {
    launch.round = others_.OnDispatched();
  }
  return decision;
}

void LookAheadPolicy::OnEnded(const Launch& launch, Nanoseconds, TimePoint now) {
  if (launch.dispatched_as == TenantClass::kHighPriority) {
    --num_high_in_flight_;
    return UpdateGate(now);
  }
  yields_.OnEnded(launch);
  if (launch.asked.can_yield || launch.is_ahead) return;
  if (launch.asked.is_short) return short_ones_.OnEnded(launch.tenant, launch.asked, launch.counted, now);
  others_.OnDrained(launch.round, now - launch.dispatched_at);
}

std::optional<TimePoint> LookAheadPolicy::WakeAt(TimePoint now) const {
  if (longest_first_.empty(0)) return std::nullopt;
  const std::optional<TimePoint> opens_at = OpensAt();
  if (opens_at && *opens_at <= now) return GivesUpAt(*opens_at);
  const std::optional<TimePoint> starved_at = StarvedAt();
  if (opens_at && starved_at) return std::min(*opens_at, *starved_at);
  return opens_at ? opens_at : starved_at;
}

}  // namespace tally::scheduler
