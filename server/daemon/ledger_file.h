// What tenants had done before tallyd was started anew: without it their counters would fall, and Prometheus would
// count once more what their sessions that still run had done. In the runtime directory, which lasts as long as the
// machine is up.
#pragma once

#include <string>
#include <vector>

#include "server/daemon/tenant_ledger.h"

namespace tally::server {

struct KeptLedger {
  TenantLedger ledger;
  std::vector<std::string> gpus;  // the names of the places that figures by GPU have (gpu_places.h)
};

// Replaces the file. A failure costs a line in the log.
void SaveLedger(const std::string& path, const TenantLedger& ledger, const std::vector<std::string>& gpus);
// Empty: there is none, or it is of another table of figures, or makes no sense.
KeptLedger LoadLedger(const std::string& path);

}  // namespace tally::server
