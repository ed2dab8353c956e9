// Everything that can be set about tallyd: one struct, filled from a JSON file and flags, validated once.
//
// Precedence: flags, then the file, then the defaults below. After Validate() nothing is changed any more but what
// reload.h says.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/control/executor_choices.h"
#include "proto/shm/handshake_abi.h"
#include "scheduler/policy_choice.h"
#include "server/daemon/grant.h"

namespace tally::server {

using control::DriverChoice;
using control::Transforms;

// A set of users: everybody, or a list.
struct UidSet {
  bool everybody = false;
  std::vector<uid_t> uids;

  bool Contains(uid_t uid) const;
  bool operator==(const UidSet&) const = default;
};

inline constexpr std::chrono::milliseconds kShortestStarvationBound{1};
inline constexpr std::chrono::milliseconds kLongestStarvationBound{3'600'000};
inline constexpr uint64_t kLongestTimeSliceUs = 1'000'000;
inline constexpr uint64_t kLongestGatesRestMs = 3'600'000;

struct DaemonConfig {
  // Where clients connect: a link into the directory `clients` beside it. Empty: the default of
  // proto/control/socket_paths.h for the daemon's user.
  std::string socket;
  // The socket's directory, with all of the daemon's sockets and files (Validate sets it); created with mode 0700 (0711
  // if other users may connect).
  std::string runtime_dir;
  // Who may get a session. Unset: everybody if the daemon is root (and not a private one), else only its own
  // user. Root of the machine always may.
  std::optional<UidSet> allowed_uids;
  // Who may have the high-priority class, which goes before everybody else's work. Unset: the daemon's own user. Root
  // of the machine always may.
  std::optional<UidSet> high_priority_uids;
  // Class of a session that asks for none and may have it; best-effort for others.
  shm::PriorityClass default_priority = shm::PriorityClass::kBestEffort;
  // Tenants of different users in one address space: off unless the users trust one another.
  bool share_domains_between_users = false;
  // High-priority and best-effort programs of one user in one context, so that the GPU need not switch between them:
  // soonest for the high-priority ones, but a fault of any of them is everybody's. Not those that name a domain.
  bool share_contexts = false;
  // Best-effort contexts are descheduled while high-priority work keeps coming (server/executor/process/descheduler.h),
  // with policies that mind classes.
  bool suspend_best_effort = false;
  // High-priority contexts are preempted in a pause, once a second at most (server/executor/process/refresher.h).
  bool refresh_contexts = true;
  // Users see their own sessions (rpc/view_server.h), where others than the daemon's may have some.
  bool shows_own_sessions = true;
  // Users see there, too, what all have together.
  bool shows_totals = false;
  // The GPU is held in gaps of high-priority work where its requests are shorter with it
  // (server/executor/dispatch/gap_hold.h).
  bool hold_gpu = true;
  // Sessions at a time, of all users together and of one user.
  uint32_t max_sessions = 1024;
  uint32_t max_sessions_per_user = 512;
  // Domains (executor processes) at a time of one user: each costs a context, about 0.5 GB of GPU memory.
  uint32_t max_domains_per_user = 16;
  // What one session may hold; 0: whatever the device has, half of the machine's memory.
  uint64_t session_device_memory_bytes = 0;
  uint64_t session_pinned_memory_bytes = 0;
  DriverChoice driver = DriverChoice::kAuto;
  // An executor without sessions ends after this time and gives its GPU memory back.
  std::chrono::seconds executor_idle{60};
  // Work of a program that is gone ends its executor after this time; zero: never.
  std::chrono::seconds departed_work_limit{10};
  // How long opening the driver may take before the clients that wait are refused.
  std::chrono::seconds executor_start_limit{60};
  // Which best-effort launch goes next, and when: scheduler::kAutoPolicy, kLookAheadPolicy or a name of
  // scheduler/policy_list.h.
  std::string policy = scheduler::kAutoPolicy;
  // How kernels of best-effort programs are rewritten so that they can give the GPU back; within this time if possible.
  Transforms transforms = Transforms::kNone;
  std::chrono::nanoseconds turnaround_threshold{31'600};
  // Kernels run without gates once no high-priority work has come for so long; zero: never.
  std::chrono::milliseconds gates_rest_after{1000};
  // How long the GPU runs best-effort work at a time while there is a high-priority domain; zero: time slices are left
  // as the driver sets them.
  std::chrono::microseconds best_effort_time_slice{1};
  // Best-effort work that has waited so long behind high-priority work gets one launch through; zero: it waits. Unset:
  // what StarvationBoundOf says (policy_rules.h).
  std::optional<std::chrono::nanoseconds> starvation_bound;
  // Where compiled kernels and what was measured about them are kept. "auto" (Validate sets it): systemd's
  // $CACHE_DIRECTORY, else /var/cache/tally for root, $XDG_CACHE_HOME/tally or ~/.cache/tally; empty: nowhere.
  std::string cache_directory = "auto";
  // Tenants with a socket of their own, besides those of tallyctl.
  std::vector<GrantSpec> grants;
  // "HOST:PORT" of the Prometheus endpoint; "0" or empty: none.
  std::string metrics_address = "127.0.0.1:9464";
  // Whether somebody asked for that address (then failing to bind it is an error, else a warning).
  bool is_metrics_address_explicit = false;

  // Flags only.
  int ready_fd = -1;          // gets one line "ready ..." once clients can connect; -1: none
  pid_t embedded_parent{};    // not 0: private daemon of that tally-run; ends with it, takes its executors along
  std::string executor_path;  // empty: tally-executor beside tallyd
};

// Whether any user but the daemon's own may have a session. Of a validated configuration.
bool OthersMayConnect(const DaemonConfig& config);

// The keys of the file, sorted.
std::vector<std::string> ConfigKeys();
// Merges the JSON object in `text` into `config`. Unknown keys and wrong types are errors that name the key and its
// line.
Status MergeConfigJson(const std::string& text, DaemonConfig& config);
Status MergeConfigFile(const std::string& path, DaemonConfig& config);
// Fills what is empty with the defaults of user `uid` and checks the rest.
Status Validate(uid_t uid, DaemonConfig& config);

Result<shm::PriorityClass> ParsePriorityClass(const std::string& text);
// "high", "best-effort"; never null.
const char* PriorityClassName(shm::PriorityClass priority_class);
Result<DriverChoice> ParseDriverChoice(const std::string& text);
const char* DriverChoiceName(DriverChoice driver);
// "all", "slices", "workers", "gate", "none".
// The text itself, if there is such a policy.
Result<std::string> ParsePolicy(const std::string& text);
// A time, "off", or "auto": unset.
Result<std::optional<std::chrono::nanoseconds>> ParseStarvationBound(const std::string& text);
Result<Transforms> ParseTransforms(const std::string& text);
const char* TransformsName(Transforms transforms);

}  // namespace tally::server
