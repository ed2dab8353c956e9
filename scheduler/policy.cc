#include "scheduler/policy.h"

#include <algorithm>

#include "base/check.h"

namespace tally::scheduler {
namespace {

void CheckShare(const TenantShare& share) {
  CHECK(share.level < kNumLevels && share.weight >= 1 && share.weight <= kMaxWeight);
}

}  // namespace

void Policy::OnHighPriorityElsewhere(bool, TimePoint, TimePoint) {}

TenantId Policy::AddTenant(const TenantShare& share, TimePoint) {
  CheckShare(share);
  const TenantId id = book_.AddTenant(share);
  OnAdded(id.index);
  return id;
}

void Policy::ChangeTenant(TenantId id, const TenantShare& share, TimePoint now) {
  CheckShare(share);
  LaunchBook::Tenant& tenant = book_.tenant(id);
  if (tenant.share.tenant_class == share.tenant_class && tenant.share.level == share.level) {
    if (tenant.share.weight == share.weight) return;
    tenant.share = share;
    return OnWeightChanged(id.index);
  }
  if (tenant.num_waiting != 0) OnDrained(id.index, now);
  OnRemoved(id.index);
  tenant.share = share;
  OnAdded(id.index);
  if (tenant.num_waiting != 0) OnBacklogged(id.index, now);
  OnHeadChanged(id.index, now);
}

void Policy::RemoveTenant(TenantId id, TimePoint now) {
  if (book_.tenant(id).num_waiting != 0) OnDrained(id.index, now);
  OnRemoved(id.index);
  book_.RemoveTenant(id);
  OnHeadChanged(id.index, now);
}

LaunchId Policy::OnSubmitted(TenantId tenant, const LaunchAsked& asked, TimePoint now) {
  const LaunchId id = book_.Append(tenant, asked);
  if (book_.tenant(tenant.index).num_waiting == 1) OnBacklogged(tenant.index, now);
  return id;
}

void Policy::Withdraw(LaunchId id, TimePoint now) {
  const uint32_t tenant = book_.launch(id).tenant.index;
  if (book_.tenant(tenant).num_waiting == 1) OnDrained(tenant, now);
  book_.Withdraw(id);
  OnHeadChanged(tenant, now);
}

void Policy::Ended(Launch& launch, Nanoseconds gpu_time, TimePoint now) {
  if (launch.dispatched_as == TenantClass::kBestEffort && book_.IsPresent(launch.tenant)) {
    --book_.tenant(launch.tenant.index).num_best_effort_in_flight;
  }
  OnEnded(launch, gpu_time, now);
}

void Policy::OnCompleted(LaunchId id, Nanoseconds gpu_time, TimePoint now) {
  Ended(book_.launch(id), gpu_time, now);
  book_.Finish(id);
}

void Policy::OnYielded(LaunchId id, Nanoseconds gpu_time, TimePoint now) {
  Launch& launch = book_.launch(id);
  const TenantId tenant = launch.tenant;
  Ended(launch, gpu_time, now);
  if (!book_.IsPresent(tenant)) return book_.Finish(id);
  if (launch.asked.duration > Nanoseconds(0)) {
    launch.asked.duration = std::max(launch.asked.duration - gpu_time, Nanoseconds(1));
  }
  book_.PutBack(id);
  if (book_.tenant(tenant.index).num_waiting == 1) OnBacklogged(tenant.index, now);
  OnHeadChanged(tenant.index, now);
}

Decision Policy::Dispatch(uint32_t tenant, TenantClass as, TimePoint now) {
  if (book_.tenant(tenant).num_waiting == 1) OnDrained(tenant, now);
  const LaunchId id = book_.TakeHead(tenant);
  book_.launch(id).dispatched_as = as;
  if (as == TenantClass::kBestEffort) ++book_.tenant(tenant).num_best_effort_in_flight;
  OnHeadChanged(tenant, now);
  return {.kind = Decision::Kind::kDispatch, .tenant = book_.IdOf(tenant), .launch = id};
}

std::optional<uint32_t> Policy::NextHighPriorityTenant(TenantRings& rings, size_t ring) const {
  if (rings.empty(ring)) return std::nullopt;
  const uint32_t first = rings.Front(ring);
  do {
    const uint32_t tenant = rings.Front(ring);
    if (book_.tenant(tenant).num_best_effort_in_flight == 0) return tenant;
    if (book_.Head(tenant).has_yielded && !book_.MayGetOlderHead(tenant)) return tenant;
    rings.Advance(ring);
  } while (rings.Front(ring) != first);
  return std::nullopt;
}

}  // namespace tally::scheduler
