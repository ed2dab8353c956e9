#include "server/daemon/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tally::server {
namespace {

bool IsDomainName(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           letter == '-' || letter == '_' || letter == '.';
  });
}

// Number 0 in a list is root of the machine: that of a container needs a grant, or "any".
bool IsIn(const UidSet& users, const Asker& asker) {
  return users.everybody || asker.is_root_of_the_machine || (asker.uid != 0 && users.Contains(asker.uid));
}

bool MayBeHigh(const Asker& asker, const DaemonConfig& config) {
  if (asker.grant != nullptr) return asker.grant->ceiling == shm::PriorityClass::kHighPriority;
  return IsIn(*config.high_priority_uids, asker);
}

// What it gets if it says nothing. With a grant the best it may have: nothing hangs on a variable.
shm::PriorityClass DefaultClass(const Asker& asker, const DaemonConfig& config) {
  if (asker.grant != nullptr) return asker.grant->ceiling;
  return MayBeHigh(asker, config) ? config.default_priority : shm::PriorityClass::kBestEffort;
}

Status NotHigh(const Asker& asker) {
  if (asker.grant != nullptr) {
    return Status(StatusCode::kPermissionDenied,
                  fmt::format("tenant '{}' may not run high-priority programs: its grant is best-effort; leave "
                              "--priority away, or have whoever runs tallyd grant more",
                              asker.grant->tenant));
  }
  if (asker.uid == 0) {
    return Status(StatusCode::kPermissionDenied,
                  "root of a container may not run high-priority programs here: have whoever runs tallyd make a grant "
                  "(tallyctl grant create), or leave --priority away");
  }
  return Status(StatusCode::kPermissionDenied,
                fmt::format("user {} may not run high-priority programs here: have whoever runs tallyd add it to "
                            "high_priority_uids, or leave --priority away",
                            asker.uid));
}

Status CheckShare(const shm::HelloRequest& hello, const GrantSpec* grant) {
  if (hello.weight > scheduler::kMaxWeight || hello.level >= scheduler::kNumLevels) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("weight {}, level {}: a weight is from 1 to {}, a level from 0 to {}", hello.weight,
                              hello.level, scheduler::kMaxWeight, scheduler::kNumLevels - 1));
  }
  if (grant != nullptr && (hello.weight > grant->weight || hello.level > grant->level)) {
    return Status(StatusCode::kPermissionDenied,
                  fmt::format("weight {}, level {}: the grant of tenant '{}' has weight {} and level {}", hello.weight,
                              hello.level, grant->tenant, grant->weight, grant->level));
  }
  return OkStatus();
}

Status PlaceQuotas(const shm::HelloRequest& hello, const GrantSpec* grant, Placement& placement) {
  if (hello.share_permille > scheduler::kWholeShare) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a share of {} thousandths is more than all of the GPU", hello.share_permille));
  }
  placement.device_memory_bytes = MemoryLimit(hello.device_memory_bytes, grant);
  if (grant != nullptr) placement.share_permille = grant->SharePermille();
  if (hello.share_permille != 0) placement.share_permille = std::min(placement.share_permille, hello.share_permille);
  if (placement.share_permille < scheduler::kWholeShare &&
      placement.session_class == shm::PriorityClass::kHighPriority) {
    return Status(StatusCode::kInvalidArgument,
                  "a share of GPU time (--share) caps best-effort programs: leave it away, or say --priority "
                  "best-effort");
  }
  return OkStatus();
}

// One that others of its owner are in only if they say that they are the same rank of the same job.
Status NameOwnDomain(const shm::HelloRequest& hello, const Asker& asker, Domain& domain) {
  switch (static_cast<shm::OwnDomain>(hello.own_domain)) {
    case shm::OwnDomain::kNo:
      return OkStatus();
    case shm::OwnDomain::kRank:
      if (domain.name.empty()) return Status(StatusCode::kInvalidArgument, "a rank of a job without a name");
      domain.name = fmt::format("rank-{}-{}", hello.rank, domain.name);
      break;
    case shm::OwnDomain::kApart:
      domain.name = fmt::format("apart-{}", asker.session_id);
      break;
    default:
      return Status(StatusCode::kInvalidArgument, fmt::format("there is no own domain {}", hello.own_domain));
  }
  domain.is_own = true;
  return OkStatus();
}

void MixClasses(const Asker& asker, Domain& domain) {
  // A tenant that is alone and never high has nothing to mix.
  if (asker.grant != nullptr && asker.grant->domain_policy == DomainPolicy::kTenant &&
      asker.grant->ceiling != shm::PriorityClass::kHighPriority)
    return;
  domain = domain.Mixed();
}

}  // namespace

uint64_t MemoryLimit(uint64_t asked_bytes, const GrantSpec* grant) {
  const uint64_t granted_bytes = grant != nullptr ? grant->device_memory_bytes : 0;
  if (asked_bytes == 0 || granted_bytes == 0) return std::max(asked_bytes, granted_bytes);
  return std::min(asked_bytes, granted_bytes);
}

bool MayHaveSessions(const Asker& asker, uid_t own_uid, const DaemonConfig& config) {
  return IsIn(*config.allowed_uids, asker) || (asker.uid == own_uid && own_uid != 0);
}

Result<Placement> Place(const shm::HelloRequest& hello, const Asker& asker, const DaemonConfig& config,
                        const std::function<std::optional<shm::PriorityClass>(const Domain&)>& class_of) {
  Domain domain;
  if (asker.grant != nullptr) {
    domain.grant_owner = asker.grant->DomainOwner();
  } else {
    domain.owner_uid = config.share_domains_between_users ? control::kSharedDomain : asker.uid;
  }
  domain.name.assign(hello.domain_name, ::strnlen(hello.domain_name, sizeof(hello.domain_name)));
  if (domain.name.size() == sizeof(hello.domain_name) || !IsDomainName(domain.name)) {
    return Error(StatusCode::kInvalidArgument,
                 fmt::format("a domain's name is made of at most {} letters, digits, '-', '_' and '.'",
                             sizeof(hello.domain_name) - 1));
  }
  if (const Status named = NameOwnDomain(hello, asker, domain); !named.ok()) return std::unexpected(named);
  if (hello.priority_class > static_cast<uint32_t>(shm::PriorityClass::kBestEffort)) {
    return Error(StatusCode::kInvalidArgument, fmt::format("there is no priority class {}", hello.priority_class));
  }
  if (const Status share = CheckShare(hello, asker.grant); !share.ok()) return std::unexpected(share);
  // The class: as asked, else the domain's, else the grant's or the configured one.
  std::optional<shm::PriorityClass> domain_class;
  if (const auto reserved = ParsePriorityClass(domain.name)) domain_class = *reserved;
  if (!domain_class && !domain.name.empty()) domain_class = class_of(domain);
  const auto asked = static_cast<shm::PriorityClass>(hello.priority_class);
  const auto default_class = DefaultClass(asker, config);
  domain.priority_class = asked != shm::PriorityClass::kDefault ? asked : domain_class.value_or(default_class);
  if (domain_class && domain.priority_class != *domain_class) {
    return Error(StatusCode::kFailedPrecondition,
                 fmt::format("domain '{}' is {}, so a {} program cannot run in it: leave --domain or --priority away",
                             domain.name, PriorityClassName(*domain_class), PriorityClassName(domain.priority_class)));
  }
  if (domain.priority_class == shm::PriorityClass::kHighPriority && !MayBeHigh(asker, config)) {
    return std::unexpected(NotHigh(asker));
  }
  Placement placement;
  placement.session_class = domain.priority_class;
  if (domain.name.empty() && config.share_contexts) MixClasses(asker, domain);
  if (domain.name.empty()) domain.name = PriorityClassName(domain.priority_class);
  placement.weight = hello.weight != 0 ? hello.weight : scheduler::kDefaultWeight;
  placement.level = hello.level;
  if (asker.grant != nullptr) {
    // Each class has one of them; the other would be refused where a policy ignores it.
    const bool is_high = placement.session_class == shm::PriorityClass::kHighPriority;
    if (!is_high && hello.weight == 0) placement.weight = asker.grant->weight;
    if (is_high && hello.level == 0) placement.level = asker.grant->level;
  }
  if (const Status quotas = PlaceQuotas(hello, asker.grant, placement); !quotas.ok()) return std::unexpected(quotas);
  placement.domain = std::move(domain);
  return placement;
}

}  // namespace tally::server
