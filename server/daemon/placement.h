// Which domain, class and share a session gets: from what its program asks for, and from what its user or its grant
// may have.
#pragma once

#include <functional>
#include <optional>

#include "base/status.h"
#include "proto/shm/handshake_abi.h"
#include "scheduler/launch.h"
#include "server/daemon/config.h"
#include "server/daemon/domain.h"
#include "server/daemon/grant.h"

namespace tally::server {

// Who asks, as the kernel says.
struct Asker {
  uid_t uid = 0;
  bool is_root_of_the_machine = false;  // peer_facts.h
  const GrantSpec* grant = nullptr;     // null: it came by the common socket
  uint64_t session_id = 0;              // that it gets
};

struct Placement {
  Domain domain;
  shm::PriorityClass session_class = shm::PriorityClass::kBestEffort;
  uint32_t weight = scheduler::kDefaultWeight;
  uint32_t level = 0;
  // Of its tenant, all its programs together.
  uint64_t device_memory_bytes = 0;  // of each GPU; 0: no quota
  uint32_t share_permille = scheduler::kWholeShare;
};

// Of each GPU; 0: none. What a program asks for can be less than what its grant has (null: it has none), never more.
uint64_t MemoryLimit(uint64_t asked_bytes, const GrantSpec* grant);

// Whether it may have a session at all; by the common socket.
bool MayHaveSessions(const Asker& asker, uid_t own_uid, const DaemonConfig& config);

// `class_of`: the class that such a domain has now, if it is there. kPermissionDenied: it may not have what it asks
// for; nobody is given less than it asks for by name.
Result<Placement> Place(const shm::HelloRequest& hello, const Asker& asker, const DaemonConfig& config,
                        const std::function<std::optional<shm::PriorityClass>(const Domain&)>& class_of);

}  // namespace tally::server
