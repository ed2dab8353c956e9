// Who a session belongs to, and what it has done: for ps and metrics, and for whoever is told of its end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "proto/control/graph_figures.h"
#include "proto/control/session_figures.h"
#include "proto/control/window_mode.h"
#include "proto/shm/handshake_abi.h"
#include "scheduler/launch.h"
#include "scheduler/slo.h"

namespace tally::server {

// Fixed for a session's life except class, weight, level and turnaround (Executor::SetPriority).
struct SessionIdentity {
  uint64_t session_id = 0;  // chosen by tallyd, unique while the machine is up
  pid_t pid = 0;            // from SO_PEERCRED, like uid and gid
  uid_t uid = 0;
  gid_t gid = 0;
  std::string tenant_name;
  shm::PriorityClass priority_class = shm::PriorityClass::kBestEffort;
  // Among best-effort sessions, 1 to scheduler::kMaxWeight / among high-priority ones, below scheduler::kNumLevels.
  uint32_t weight = scheduler::kDefaultWeight;
  uint32_t level = 0;
  bool keeps_kernels = false;  // its kernels run as they are, whatever ExecutorConfig::transforms says
  control::WindowMode window = control::WindowMode::kOff;
  control::GraphMode graphs = control::GraphMode::kPartitions;
  std::optional<scheduler::Slo> slo;  // of a high-priority session: how soon its requests should be done
  // How soon its kernels should give the GPU back; zero: ExecutorConfig::turnaround_threshold.
  std::chrono::nanoseconds turnaround{0};
  uint64_t grant_id = 0;              // by whose socket it came; 0: the common one
  uint64_t device_memory_bytes = 0;   // what its tenant may hold of each GPU, all its sessions together; 0: no quota
  uint32_t share_permille = 1000;     // what it may have of each GPU's time, likewise; 1000: no cap
  std::string gpus{};                 // that it may use (proto/control/granted_gpus.h); empty: all
  std::optional<uint32_t> owner_uid;  // whose its grant is, who may see it
  bool only_starts = false;           // it is there to start an executor, and is no process of its tenant's

  bool HasTenantPage() const { return device_memory_bytes != 0 || share_permille < 1000; }
};

// A consistent-enough copy for ps and metrics; counters only grow.
struct SessionSnapshot {
  SessionIdentity identity;
  std::chrono::nanoseconds age{0};
  control::SessionFigures figures{};
  uint32_t num_channels = 0;
  bool has_departed = false;  // the client is gone
  // It is gone, and its work has not ended. What it had may take longer to destroy: drivers free memory once nobody's
  // work of that context could touch it.
  bool is_draining = false;
};

struct SessionEnd {
  SessionIdentity identity;
  SessionSnapshot last;
  std::string reason;  // one sentence: "client closed the connection", "malformed record: ..."
  bool evicted = false;
};

}  // namespace tally::server
