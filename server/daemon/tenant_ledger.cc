#include "server/daemon/tenant_ledger.h"

#include <algorithm>

namespace tally::server {

void TenantLedger::AddEnded(const control::SessionIdentity& identity, const control::SessionFigures& figures) {
  TenantKey key{identity.tenant_name, identity.uid};
  if (ended_.size() >= kMaxTenants && !ended_.contains(key)) key = {"(others)", UINT32_MAX};
  control::SessionFigures counters = figures;
  for (const control::Figure figure : control::kAllFigures) {
    if (figure.row().kind == control::FigureKind::kHeldNow) std::ranges::fill(counters.entries(figure), 0);
  }
  Accumulate(ended_[key], counters);
}

}  // namespace tally::server
