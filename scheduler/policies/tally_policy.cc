#include "scheduler/policies/tally_policy.h"

#include <algorithm>
#include <bit>

namespace tally::scheduler {
namespace {

// How many tenants are looked at for one that fits: what a decision may cost at most.
constexpr int kMostLooks = 6;

constexpr uint32_t Bit(uint8_t level) { return uint32_t{1} << level; }
int HighestOf(uint32_t levels) { return std::bit_width(levels) - 1; }

}  // namespace

TallyPolicy::TallyPolicy(const PolicyConfig& config)
    : starvation_bound_(config.starvation_bound),
      lower_levels_(config.tuning.target_drain, config.tuning.turnaround_threshold, config.longest_wait),
      hold_off_rule_({.min_hold_off = config.tuning.min_hold_off, .max_hold_off = config.tuning.max_hold_off}),
      fair_({config.fair_quantum, config.expects_back}),
      in_flight_(config.tuning.target_drain, config.tuning.turnaround_threshold, config.longest_wait) {}

void TallyPolicy::Tune(const Tuning& tuning) {
  hold_off_rule_.SetHoldOffBounds(tuning.min_hold_off, tuning.max_hold_off);
  lower_levels_.Set(tuning.target_drain, tuning.turnaround_threshold);
  in_flight_.Set(tuning.target_drain, tuning.turnaround_threshold);
}

void TallyPolicy::OnAdded(uint32_t tenant) {
  const TenantShare& share = book_.tenant(tenant).share;
  if (share.tenant_class == TenantClass::kBestEffort) return fair_.Add(tenant, share.weight);
  ++num_tenants_[share.level];
  tenant_levels_ |= Bit(share.level);
}

void TallyPolicy::OnRemoved(uint32_t tenant) {
  const TenantShare& share = book_.tenant(tenant).share;
  if (share.tenant_class == TenantClass::kBestEffort) return fair_.Remove(tenant);
  if (--num_tenants_[share.level] == 0) tenant_levels_ &= ~Bit(share.level);
}

void TallyPolicy::OnWeightChanged(uint32_t tenant) {
  const TenantShare& share = book_.tenant(tenant).share;
  if (share.tenant_class == TenantClass::kBestEffort) fair_.SetWeight(tenant, share.weight);
}

void TallyPolicy::OnBacklogged(uint32_t tenant, TimePoint now) {
  const TenantShare& share = book_.tenant(tenant).share;
  if (share.tenant_class == TenantClass::kBestEffort) {
    if (fair_.empty()) waiting_since_ = now;
    in_turn_.Join(0, tenant);
    return fair_.Join(tenant);
  }
  waiting_.Join(share.level, tenant);
  waiting_levels_ |= Bit(share.level);
  UpdateGate(now);
}

void TallyPolicy::OnDrained(uint32_t tenant, TimePoint now) {
  const TenantShare& share = book_.tenant(tenant).share;
  if (share.tenant_class == TenantClass::kBestEffort) {
    in_turn_.Leave(0, tenant);
    return fair_.RunOut(tenant, now);
  }
  waiting_.Leave(share.level, tenant);
  if (waiting_.empty(share.level)) waiting_levels_ &= ~Bit(share.level);
  UpdateGate(now);
}

void TallyPolicy::OnHeadChanged(uint32_t index, TimePoint) {
  const LaunchBook::Tenant& tenant = book_.tenant(index);
  const bool is_to_resume =
      tenant.num_waiting != 0 && tenant.share.tenant_class == TenantClass::kBestEffort && book_.Head(index).has_yielded;
  if (is_to_resume == to_resume_.Contains(index)) return;
  is_to_resume ? to_resume_.Join(0, index) : to_resume_.Leave(0, index);
}

void TallyPolicy::OnHighPriorityElsewhere(bool is_busy, TimePoint opens_at, TimePoint now) {
  is_busy_elsewhere_ = is_busy;
  if (!is_busy) elsewhere_opens_at_ = opens_at;
  UpdateGate(now);
}

void TallyPolicy::UpdateGate(TimePoint now) {
  const bool is_present = IsHighPriorityPresent();
  if (is_present == was_present_) return;
  was_present_ = is_present;
  is_present ? hold_off_rule_.OnHighPriorityBusy(now) : hold_off_rule_.OnHighPriorityIdle(now);
}

void TallyPolicy::OnEnded(const Launch& launch, Nanoseconds gpu_time, TimePoint now) {
  if (launch.dispatched_as == TenantClass::kHighPriority) {
    const uint8_t level = launch.dispatched_at_level;
    if (--num_in_flight_[level] == 0) in_flight_levels_ &= ~Bit(level);
    if (launch.is_in_budget) lower_levels_.OnEnded(launch.tenant, launch.asked, launch.counted, now);
    return UpdateGate(now);
  }
  yields_.OnEnded(launch);
  in_flight_.OnEnded(launch.tenant, launch.asked, launch.counted, now);
  if (launch.is_granted) is_grant_in_flight_ = false;
  // It may have left, or have become high-priority.
  if (!book_.IsPresent(launch.tenant)) return;
  if (book_.tenant(launch.tenant.index).share.tenant_class != TenantClass::kBestEffort) return;
  fair_.Charge(launch.tenant.index, GpuShareOf(gpu_time - launch.asked.duration, launch.asked.fill));
}

std::optional<TimePoint> TallyPolicy::OpensAt() const {
  const std::optional<TimePoint> opens_at = hold_off_rule_.OpensAt();
  if (!opens_at) return std::nullopt;
  return std::max(*opens_at, elsewhere_opens_at_);
}

std::optional<TimePoint> TallyPolicy::StarvedAt() const {
  if (!starvation_bound_ || is_grant_in_flight_) return std::nullopt;
  return waiting_since_ + *starvation_bound_;
}

std::optional<Decision> TallyPolicy::Next(TimePoint now) {
  // First of all: it takes the GPU longer to give back than us to launch.
  if (yields_.any_to_ask() && IsHighPriorityPresent()) {
    yields_.OnAsked();
    return Decision{.kind = Decision::Kind::kYield, .tenant = {}, .launch = {}};
  }
  if (waiting_levels_ != 0) {
    if (const std::optional<Decision> decision = NextHighPriority(now)) return decision;
  }
  return fair_.empty() ? std::nullopt : NextBestEffort(now);
}

std::optional<Decision> TallyPolicy::NextHighPriority(TimePoint now) {
  const int highest = HighestOf(waiting_levels_);
  if (highest < HighestOf(in_flight_levels_)) return std::nullopt;
  const auto level = static_cast<uint8_t>(highest);
  const std::optional<uint32_t> next = NextHighPriorityTenant(waiting_, level);
  if (!next) return std::nullopt;
  const uint32_t tenant = *next;
  const Launch& head = book_.Head(tenant);
  const bool is_below = highest < HighestOf(tenant_levels_);
  if (is_below && !head.has_yielded && !lower_levels_.Admits(book_.IdOf(tenant), head.asked, now)) return std::nullopt;

  // Counted before it stops waiting, so that the class is never seen absent in between.
  ++num_in_flight_[level];
  in_flight_levels_ |= Bit(level);
  waiting_.Advance(level);
  const Decision decision = Dispatch(tenant, TenantClass::kHighPriority, now);
  Launch& launch = book_.launch(decision.launch);
  launch.dispatched_at_level = level;
  launch.is_in_budget = is_below;
  launch.is_granted = false;
  if (is_below) launch.counted = lower_levels_.OnDispatched(decision.tenant, launch.asked, now);
  return decision;
}

std::optional<Decision> TallyPolicy::NextBestEffort(TimePoint now) {
  const std::optional<TimePoint> opens_at = OpensAt();
  const bool is_open = opens_at && *opens_at <= now;
  const std::optional<TimePoint> starved_at = StarvedAt();
  const bool is_granted = !is_open && starved_at && *starved_at <= now;
  if (!is_open && !is_granted) return std::nullopt;
  uint32_t tenant = 0;
  if (is_granted) {
    tenant = in_turn_.Front(0);
    in_turn_.Advance(0);
  } else if (!to_resume_.empty(0)) {
    // What yielded was in flight together before, and gives the GPU back whenever it must: no question of the budget.
    tenant = to_resume_.Front(0);
  } else {
    const std::optional<uint32_t> picked = PickByWeight(now);
    if (!picked) return std::nullopt;
    fair_.Begin(*picked);
    tenant = *picked;
  }

  Decision decision = Dispatch(tenant, TenantClass::kBestEffort, now);
  decision.run_through = is_granted;
  decision.is_forced = in_flight_.HasGivenUp(now);
  waiting_since_ = now;
  Launch& launch = book_.launch(decision.launch);
  launch.is_granted = is_granted;
  if (is_granted) {
    is_grant_in_flight_ = true;
    launch.asked.can_yield = false;
  }
  yields_.OnDispatched(launch, launch.asked.can_yield);
  launch.counted = in_flight_.OnDispatched(decision.tenant, launch.asked, now);
  fair_.Charge(tenant, GpuShareOf(launch.asked.duration, launch.asked.fill));
  return decision;
}

std::optional<uint32_t> TallyPolicy::PickByWeight(TimePoint now) {
  // Waits for those who are expected only while the GPU is busy: with nothing in flight that would be a loss.
  const std::optional<uint32_t> turn = fair_.NextReady(now, !in_flight_.empty());
  if (!turn) return std::nullopt;
  const uint32_t first = *turn;
  const auto room_for = [&](uint32_t tenant) {
    return in_flight_.RoomFor(book_.IdOf(tenant), book_.Head(tenant).asked, now);
  };
  const DrainBudget::Room room = room_for(first);
  if (room == DrainBudget::Room::kBeside) return first;
  std::optional<uint32_t> tenant = fair_.NextOfRound(first);
  for (int i = 1; i < kMostLooks && tenant; ++i) {
    if (!fair_.IsExpected(*tenant) && room_for(*tenant) == DrainBudget::Room::kBeside) return tenant;
    tenant = fair_.NextOfRound(*tenant);
  }
  if (room == DrainBudget::Room::kNone) return std::nullopt;
  return first;
}

std::optional<TimePoint> TallyPolicy::WakeAt(TimePoint now) const {
  std::optional<TimePoint> wake_at;
  const auto consider = [&](TimePoint at) { wake_at = wake_at ? std::min(*wake_at, at) : at; };
  if (waiting_levels_ != 0 && !lower_levels_.empty()) consider(lower_levels_.GivesUpAt());
  if (fair_.empty()) return wake_at;
  if (const std::optional<TimePoint> opens_at = OpensAt()) {
    if (*opens_at > now) {
      consider(*opens_at);
    } else if (!in_flight_.empty()) {
      consider(in_flight_.GivesUpAt());
    }
  }
  if (const std::optional<TimePoint> until = fair_.waits_until(); until && *until > now) consider(*until);
  const std::optional<TimePoint> starved_at = StarvedAt();
  if (starved_at && *starved_at > now) consider(*starved_at);
  return wake_at;
}

}  // namespace tally::scheduler
