#include "server/daemon/tenant_ledger.h"

#include <algorithm>

namespace tally::server {

TenantKey TenantKeyOf(const control::SessionIdentity& identity) {
  const bool has_grant = identity.grant_id != 0;
  return {identity.tenant_name, has_grant ? 0 : identity.uid, has_grant};
}

void TenantLedger::AddEnded(const control::SessionIdentity& identity, const control::SessionFigures& figures) {
  TenantKey key = TenantKeyOf(identity);
  if (!ended_.contains(key)) {
    const auto num_alike = std::ranges::count(ended_, key.has_grant, [](auto& each) { return each.first.has_grant; });
    const size_t limit = key.has_grant ? kMaxGrantedTenants : kMaxTenants;
    if (static_cast<size_t>(num_alike) >= limit) key = {"(others)", UINT32_MAX, key.has_grant};
  }
  control::SessionFigures counters = figures;
  for (const control::Figure figure : control::kAllFigures) {
    if (figure.row().kind == control::FigureKind::kHeldNow) std::ranges::fill(counters.entries(figure), 0);
  }
  Accumulate(ended_[key], counters);
}

}  // namespace tally::server
