// What each tenant has done: sessions that ended. tallyd adds those that run.
//
// Exists so that a tenant's counters never go down when a session ends. Lives on the daemon's loop.
#pragma once

#include <compare>
#include <map>
#include <string>

#include "proto/control/executor_link_abi.h"

namespace tally::server {

struct TenantKey {
  std::string name;
  uint32_t uid = 0;
  auto operator<=>(const TenantKey&) const = default;
};

class TenantLedger {
 public:
  // Names come from clients: beyond this many tenants the rest is one line, "(others)".
  static constexpr size_t kMaxTenants = 1000;

  // The last figures of a session that is gone. What it held is free again, so figures of kind kHeldNow do not count.
  void AddEnded(const control::SessionIdentity& identity, const control::SessionFigures& figures);
  // What an earlier tallyd had of it (ledger_file.h).
  void Restore(const TenantKey& tenant, const control::SessionFigures& figures) { ended_[tenant] = figures; }
  const std::map<TenantKey, control::SessionFigures>& ended() const { return ended_; }

 private:
  std::map<TenantKey, control::SessionFigures> ended_;
};

}  // namespace tally::server
