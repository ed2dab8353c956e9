#include "scheduler/policies/kernel_granular_policy.h"

namespace tally::scheduler {

void KernelGranularPolicy::OnBacklogged(uint32_t tenant, TimePoint) { waiting_.Join(RingOf(tenant), tenant); }
void KernelGranularPolicy::OnDrained(uint32_t tenant, TimePoint) { waiting_.Leave(RingOf(tenant), tenant); }

void KernelGranularPolicy::OnHighPriorityElsewhere(bool is_busy, TimePoint, TimePoint) { is_busy_elsewhere_ = is_busy; }

void KernelGranularPolicy::OnEnded(const Launch& launch, Nanoseconds, TimePoint now) {
  if (launch.dispatched_as == TenantClass::kHighPriority) {
    --num_high_in_flight_;
    return;
  }
  yields_.OnEnded(launch);
  in_flight_.OnEnded(launch.tenant, launch.asked, launch.counted, now);
}

std::optional<Decision> KernelGranularPolicy::Next(TimePoint now) {
  if (const std::optional<uint32_t> tenant = NextHighPriorityTenant(waiting_, kHighPriority)) {
    ++num_high_in_flight_;
    return Dispatch(*tenant, TenantClass::kHighPriority, now);
  }
  if (waiting_.empty(kBestEffort) || IsHighPriorityPresent()) return std::nullopt;
  const uint32_t tenant = waiting_.Front(kBestEffort);
  if (!in_flight_.Admits(book_.IdOf(tenant), book_.Head(tenant).asked, now)) return std::nullopt;
  waiting_.Advance(kBestEffort);
  Decision decision = Dispatch(tenant, TenantClass::kBestEffort, now);
  decision.is_forced = in_flight_.HasGivenUp(now);
  Launch& launch = book_.launch(decision.launch);
  yields_.OnDispatched(launch, launch.asked.can_yield);
  launch.counted = in_flight_.OnDispatched(decision.tenant, launch.asked, now);
  return decision;
}

std::optional<TimePoint> KernelGranularPolicy::WakeAt(TimePoint) const {
  if (waiting_.empty(kBestEffort) || IsHighPriorityPresent() || in_flight_.empty()) return std::nullopt;
  return in_flight_.GivesUpAt();
}

}  // namespace tally::scheduler
