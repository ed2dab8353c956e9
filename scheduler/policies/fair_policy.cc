#include "scheduler/policies/fair_policy.h"

#include <algorithm>

namespace tally::scheduler {

void FairPolicy::OnAdded(uint32_t tenant) { queue_.Add(tenant, book_.tenant(tenant).share.weight); }

void FairPolicy::OnEnded(const Launch& launch, Nanoseconds gpu_time, TimePoint now) {
  in_flight_.OnEnded(launch.tenant, launch.asked, launch.counted, now);
  if (!book_.IsPresent(launch.tenant)) return;
  queue_.Charge(launch.tenant.index, GpuShareOf(gpu_time - launch.asked.duration, launch.asked.fill));
}

std::optional<Decision> FairPolicy::Next(TimePoint now) {
  const std::optional<uint32_t> tenant = queue_.NextReady(now, !in_flight_.empty());
  if (!tenant) return std::nullopt;
  const Launch& head = book_.Head(*tenant);
  if (!head.has_yielded && !in_flight_.Admits(book_.IdOf(*tenant), head.asked, now)) return std::nullopt;
  queue_.Begin(*tenant);
  Decision decision = Dispatch(*tenant, book_.tenant(*tenant).share.tenant_class, now);
  decision.is_forced = in_flight_.HasGivenUp(now);
  Launch& launch = book_.launch(decision.launch);
  launch.counted = in_flight_.OnDispatched(decision.tenant, launch.asked, now);
  queue_.Charge(*tenant, GpuShareOf(launch.asked.duration, launch.asked.fill));
  return decision;
}

std::optional<TimePoint> FairPolicy::WakeAt(TimePoint now) const {
  if (queue_.empty() || in_flight_.empty()) return std::nullopt;
  const std::optional<TimePoint> until = queue_.waits_until();
  if (until && *until > now) return std::min(*until, in_flight_.GivesUpAt());
  return in_flight_.GivesUpAt();
}

}  // namespace tally::scheduler
