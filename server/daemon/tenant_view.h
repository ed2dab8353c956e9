// What a tenant sees of itself (proto/shm/tenant_view_abi.h), from what executors have told the pool and from the
// tenant's page.
//
// Called on the daemon's loop.
#pragma once

#include <string>

#include "proto/shm/tenant_view_abi.h"
#include "server/daemon/executor_pool.h"

namespace tally::server {

// Whose view it is.
struct ViewOwner {
  uint64_t grant_id = 0;  // 0: programs of this name and user
  uint32_t uid = 0;
  std::string tenant_name;
  uint64_t limit_bytes = 0;  // of each GPU; 0: none
  std::string gpus{};        // that it sees, as control::JoinedGpus says; empty: all
};

// `tenants_directory`: where the pages are.
shm::TenantViewReply ViewOf(const ExecutorPool& pool, const std::string& tenants_directory, const ViewOwner& owner);

}  // namespace tally::server
