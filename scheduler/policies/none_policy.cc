#include "scheduler/policies/none_policy.h"

namespace tally::scheduler {

void NonePolicy::OnBacklogged(uint32_t tenant, TimePoint) { waiting_.Join(0, tenant); }
void NonePolicy::OnDrained(uint32_t tenant, TimePoint) { waiting_.Leave(0, tenant); }

std::optional<Decision> NonePolicy::Next(TimePoint now) {
  if (waiting_.empty(0)) return std::nullopt;
  const uint32_t tenant = waiting_.Front(0);
  return Dispatch(tenant, book_.tenant(tenant).share.tenant_class, now);
}

}  // namespace tally::scheduler
