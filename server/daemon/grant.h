// A grant: what a tenant may have, and the socket by which it comes. Whoever connects there is that tenant, whatever
// its user: so a pod, a job or a service is one tenant, and two of them are two even if both are user 0.
//
// Plain values; who keeps them is grant_book.h. docs/tenants.md describes them for people.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/shm/handshake_abi.h"
#include "scheduler/launch.h"

namespace tally::server {

// Who is in a tenant's CUDA contexts beside it: who shares its address space and its faults.
enum class DomainPolicy {
  kTenant,     // nobody
  kNamespace,  // tenants of its namespace with this policy
  kShared,     // all tenants with this policy
};

inline constexpr size_t kMaxTenantLetters = 63;  // it fits into control::SessionIdentity, and into a label of DNS
inline constexpr size_t kMaxLabelLetters = 253;  // the longest name that Kubernetes gives a pod
inline constexpr size_t kMaxGrants = 4096;

struct GrantSpec {
  std::string tenant;  // its name, of no other grant; also that of its directory
  // The program may ask for less than these, never for more. It gets all of them if it asks for nothing.
  shm::PriorityClass ceiling = shm::PriorityClass::kBestEffort;
  uint32_t weight = scheduler::kDefaultWeight;
  uint32_t level = 0;
  uint64_t device_memory_bytes = 0;  // of each GPU, all its programs together; 0: no quota
  double share = 1;                  // of each GPU's time, likewise; of a best-effort tenant
  // UUIDs or numbers (proto/control/granted_gpus.h), in the order in which its programs see them. Empty: all.
  std::vector<std::string> gpus{};
  DomainPolicy domain_policy = DomainPolicy::kTenant;
  // For people and metrics; the first one also for kNamespace. Empty: none.
  std::string label_namespace{};
  std::string pod{};
  std::string container{};
  // A user who may see its sessions without being the administrator (rpc/view_service.h).
  std::optional<uint32_t> owner_uid{};

  // The owner of its domains (Domain::grant_owner).
  std::string DomainOwner() const;
  uint32_t SharePermille() const { return static_cast<uint32_t>(share * scheduler::kWholeShare + 0.5); }
  bool operator==(const GrantSpec&) const = default;
};

// Names and numbers in their bounds, and nothing that cannot be kept. One sentence that names the tenant.
Status CheckGrant(const GrantSpec& spec);

// The same of several, no two of one name; their sockets have room in the path of a socket.
Status CheckGrants(const std::vector<GrantSpec>& specs, const std::string& runtime_dir);

Result<DomainPolicy> ParseDomainPolicy(const std::string& text);
const char* DomainPolicyName(DomainPolicy policy);

// As in the file of the configuration and in that of the grants. Checks types only: CheckGrant follows.
Result<GrantSpec> GrantFromJson(const nlohmann::json& object);
nlohmann::json ToJson(const GrantSpec& spec);

}  // namespace tally::server
