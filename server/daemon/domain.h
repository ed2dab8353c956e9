// A domain: one executor process, one CUDA context per GPU, one fault and address-space boundary.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "proto/control/executor_link_abi.h"
#include "proto/shm/handshake_abi.h"

namespace tally::server {

// Where programs of both classes of one user run, if they share contexts.
inline constexpr const char* kMixedDomain = "mixed";

// Two sessions share an executor if and only if name and owner are equal. The owner is a user, or what the domain
// policy of a grant says (grant.h); names of clients hold no '@', so that no client can name a domain of a grant.
struct Domain {
  std::string name;                             // "high", "best-effort" or what the client asked for
  uint32_t owner_uid = control::kSharedDomain;  // kSharedDomain: the users of this daemon trust one another
  shm::PriorityClass priority_class = shm::PriorityClass::kBestEffort;  // kHighPriority if both are
  bool are_classes_mixed = false;  // for programs of both classes (DaemonConfig::share_contexts)
  bool is_own = false;             // of one rank or one process (shm::OwnDomain): it ends soon after that
  std::string grant_owner{};       // of domains of grants: a tenant, "namespace/NAME" or "shared/all"
  bool shares_otherwise = false;   // what can have no executor for it goes to Mixed()

  bool SameAs(const Domain& other) const {
    return name == other.name && owner_uid == other.owner_uid && grant_owner == other.grant_owner;
  }
  // Of the same owner, for programs of both classes.
  Domain Mixed() const {
    return {kMixedDomain, owner_uid, shm::PriorityClass::kHighPriority, true, false, grant_owner};
  }
  // Of the same owner, for all processes of a best-effort program that had better not be in Mixed().
  Domain Apart(const std::string& own_name) const {
    return {own_name, owner_uid, shm::PriorityClass::kBestEffort, false, false, grant_owner, true};
  }
  // As executors know it, with kSharedDomain as the owner of those of grants.
  std::string WireName() const { return grant_owner.empty() ? name : name + "@" + grant_owner; }
  static Domain FromWire(const std::string& wire_name, uint32_t owner_uid, shm::PriorityClass priority_class) {
    const size_t at = wire_name.find('@');
    Domain domain{wire_name.substr(0, at), owner_uid, priority_class};
    if (at != std::string::npos) domain.grant_owner = wire_name.substr(at + 1);
    return domain;
  }
  // Of a grant, and no other has sessions there.
  bool IsOneTenants() const { return !grant_owner.empty() && grant_owner.find('/') == std::string::npos; }
  // For people: "high:1000", "high@team-a"; only the name if the domain is everybody's.
  std::string Label() const {
    if (!grant_owner.empty()) return WireName();
    return owner_uid == control::kSharedDomain ? name : name + ":" + std::to_string(owner_uid);
  }
  // Under which its counters are kept: there is no end of names of own domains, so an owner has one for all of them.
  std::string CounterLabel() const {
    Domain counted = *this;
    if (is_own || shares_otherwise) counted.name = "own";
    return counted.Label();
  }
  // Whose domains are counted together, and whose faults.
  std::string OwnerLabel() const {
    if (!grant_owner.empty()) return "tenant " + grant_owner;
    return owner_uid == control::kSharedDomain ? "all users" : "user " + std::to_string(owner_uid);
  }
};

}  // namespace tally::server
