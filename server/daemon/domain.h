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

// Two sessions share an executor if and only if name and owner are equal.
struct Domain {
  std::string name;                             // "high", "best-effort" or what the client asked for
  uint32_t owner_uid = control::kSharedDomain;  // kSharedDomain: the users of this daemon trust one another
  shm::PriorityClass priority_class = shm::PriorityClass::kBestEffort;  // kHighPriority if both are
  bool are_classes_mixed = false;  // for programs of both classes (DaemonConfig::share_contexts)

  bool SameAs(const Domain& other) const { return name == other.name && owner_uid == other.owner_uid; }
  // For people: "high:1000"; only the name if the domain is everybody's.
  std::string Label() const {
    return owner_uid == control::kSharedDomain ? name : name + ":" + std::to_string(owner_uid);
  }
};

}  // namespace tally::server
