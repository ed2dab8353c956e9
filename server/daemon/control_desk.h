// What an operator can see and do, for gRPC and the metrics endpoint: plain copies, no protocol.
//
// Thread-safe: called from their threads, answered by the daemon's loop within a bounded time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/control/switch_figures.h"
#include "server/daemon/executor_pool.h"
#include "server/daemon/grant_desk.h"
#include "server/daemon/process_figures.h"

namespace tally::server {

struct SessionRow {
  SessionRecord record;
  Domain domain;
  pid_t executor_pid = 0;
  std::string driver_name;
  std::chrono::nanoseconds age{0};
  GrantSpec grant{};  // of the grant by which it came, as that is now; no tenant's name: none
};

struct ExecutorRow {
  pid_t pid = 0;
  Domain domain;
  ExecutorState state = ExecutorState::kStarting;
  std::string driver_name;
  uint32_t num_devices = 0;
  size_t num_sessions = 0;
  std::chrono::nanoseconds age{0};  // since this tallyd first saw it
  bool is_adopted = false;
  std::string policy_name;    // in force; empty while it starts
  std::string policy_reason;  // why
  control::LinkTimeSlices time_slices{};
};

struct Overview {
  std::vector<SessionRow> sessions;                      // by id
  std::vector<ExecutorRow> executors;                    // by pid
  std::map<TenantKey, control::SessionFigures> tenants;  // ended and running sessions together
  std::map<std::string, DomainCounters> domains;         // by Domain::Label
  std::map<std::string, uint64_t> refused_sessions;      // by status code's name
  std::map<std::string, uint64_t> refused_functions;     // calls, by the function's name
  std::vector<GrantRow> grants;                          // by number
  // By tenant and status code's name, of the grants that there are.
  std::map<std::pair<std::string, std::string>, uint64_t> refused_by_grants;
  scheduler::Tuning tuning;       // that all executors are to work with
  std::vector<std::string> gpus;  // UUIDs, by the places that figures by GPU have
};

struct KernelRow {
  control::LinkKernelReport report{};
  Domain domain;
  pid_t executor_pid = 0;
};

// What one executor has written.
struct ExecutorTrace {
  pid_t executor_pid = 0;
  Domain domain;
  std::vector<std::string> gpus;  // by ordinal
  UniqueFd file;                  // for ReadTraceFile
};

struct Recording {
  std::vector<ExecutorTrace> executors;
  bool is_cut_short = false;  // the administrator's went first, and this one ended then
};

struct DaemonFacts {
  std::string socket;
  std::string driver;  // of new executors
  std::chrono::nanoseconds uptime{0};
  std::optional<control::SwitchFigures> forced_switch{};  // once it was measured
  std::string cache_directory{};                          // empty: none
  ProcessFigures process{};                               // of tallyd itself
};

// What executors were asked for.
template <typename Row>
struct Listed {
  std::vector<Row> rows;
  std::set<pid_t> late{};  // executors that had not answered within half a second: theirs are missing
};

class ControlDesk {
 public:
  virtual ~ControlDesk() = default;
  // Executors that do not answer within half a second count with their last figures. kUnavailable: tallyd is ending.
  virtual Result<Overview> GetOverview() = 0;
  virtual Status SetPriority(uint64_t session_id, const control::ShareChange& change) = 0;
  // Kernels of best-effort tenants, by GPU time, the most first.
  virtual Result<Listed<KernelRow>> GetKernels() = 0;
  // Shapes of windows, the most used first.
  virtual Result<Listed<control::WindowShapeFigures>> GetWindowShapes() = 0;
  // Sessions' graphs, those launched most often first.
  virtual Result<Listed<control::GraphFigures>> GetGraphs() = 0;
  // One of them for Graphviz; empty: there is none, or it is launched as a whole.
  virtual Result<std::string> DrawGraph(uint64_t session_id, uint32_t number) = 0;
  // Has executors record what all sessions do, for the administrator, or those of one user and his grants, for so long,
  // and waits for that. kAlreadyExists: somebody does so already. For the administrator no user does: his ends.
  virtual Result<Recording> Trace(std::chrono::nanoseconds duration, std::optional<uint32_t> uid) = 0;
  virtual Status SetTurnaroundThreshold(std::chrono::nanoseconds threshold) = 0;
  virtual Result<GrantRow> CreateGrant(const GrantSpec& spec) = 0;
  virtual Status LabelGrant(const std::string& tenant, const GrantLabels& labels) = 0;
  virtual Status RevokeGrant(const std::string& tenant) = 0;
  virtual Result<std::vector<GrantRow>> GetGrants() = 0;
  virtual DaemonFacts facts() const = 0;
};

}  // namespace tally::server
