// What each tenant has done: sessions that ended. tallyd adds those that run.
//
// Exists so that a tenant's counters never go down when a session ends. Lives on the daemon's loop.
#pragma once

#include <compare>
#include <map>
#include <string>

#include "proto/control/executor_link_abi.h"

namespace tally::server {

// Whose figures are counted together.
struct TenantKey {
  std::string name;
  uint32_t uid = 0;        // 0 if it has a grant, whoever its programs are
  bool has_grant = false;  // the name is the grant's, not a program's own word
  auto operator<=>(const TenantKey&) const = default;
};

TenantKey TenantKeyOf(const control::SessionIdentity& identity);

class TenantLedger {
 public:
  // Names come from clients: beyond this many tenants the rest is one line, "(others)". Tenants with a grant have a
  // number of their own, so that no client pushes them out.
  static constexpr size_t kMaxTenants = 1000;
  static constexpr size_t kMaxGrantedTenants = 4096;

  // The last figures of a session that is gone. What it held is free again, so figures of kind kHeldNow do not count.
  void AddEnded(const control::SessionIdentity& identity, const control::SessionFigures& figures);
  // What an earlier tallyd had of it (ledger_file.h).
  void Restore(const TenantKey& tenant, const control::SessionFigures& figures) { ended_[tenant] = figures; }
  const std::map<TenantKey, control::SessionFigures>& ended() const { return ended_; }

 private:
  std::map<TenantKey, control::SessionFigures> ended_;
};

}  // namespace tally::server
