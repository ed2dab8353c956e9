// How an executor is to be, and whom it tells what happens to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "proto/control/executor_choices.h"
#include "proto/shm/handshake_abi.h"
#include "scheduler/policy_choice.h"
#include "server/executor/driver/driver_libraries.h"
#include "server/executor/session/doors.h"
#include "server/executor/session/session_limits.h"

namespace tally::server {

struct DriverTable;
struct SessionEnd;  // session_snapshot.h

struct ExecutorConfig {
  std::string domain_name;
  shm::PriorityClass priority_class = shm::PriorityClass::kBestEffort;
  // Sessions of both classes are to come: streams of high-priority ones go first on the GPU.
  bool are_classes_mixed = false;
  DriverLibraries driver;
  SessionLimits limits;
  UserLimits user_limits;
  uint32_t max_sessions = 256;
  // The machine's activity page, shared with tallyd's other executors. Empty: launches are never held back.
  std::string activity_path;
  // Where pages of tenants with a quota or a cap are (dispatch/tenant_page.h), likewise. Empty: such a tenant has
  // nothing outside of this executor.
  std::string tenants_directory;
  // Where the executors of a tallyd ask one another for shared objects, and whose sessions these are
  // (session/sharing_door.h). Empty: only sessions of this executor share.
  Doors doors;
  // How best-effort launches are held back and shared: a name of scheduler/policy_list.h, scheduler::kLookAheadPolicy,
  // or scheduler::kAutoPolicy (that one, until LeaveToTimeSlices says otherwise).
  std::string policy = scheduler::kLookAheadPolicy;
  // Variants of best-effort kernels (server/executor/issue): which there are, where they and what was measured are kept
  // (empty: nowhere), and within which time a kernel should give the GPU back.
  control::Transforms transforms = control::Transforms::kNone;
  std::string cache_directory;
  std::chrono::nanoseconds turnaround_threshold{31'600};
  // Launches go without gates once no high-priority work has come for so long; zero: never.
  std::chrono::milliseconds gates_rest_after{1000};
  // Best-effort work that has waited so long behind high-priority work gets one launch through; zero: it waits.
  std::chrono::nanoseconds starvation_bound{0};
  // The GPU may be held in gaps of high-priority work (dispatch/gap_hold.h), once AllowHolding says so.
  bool may_hold = false;
  // Device printf: makes descriptor 1 of this process a pipe and hands what arrives there to the sessions.
  bool capture_stdout = false;

  // Called once per session, after everything it made is gone.
  std::function<void(const SessionEnd&)> on_session_end;
  // The throttle level that some session's objective asks for has changed: Snapshot() has it.
  std::function<void()> on_throttle_level;
  // Called before the context of a device is made, with its ordinal, and after that with -1; never for two at a
  // time.
  std::function<void(int device)> on_making_context;
  // Called when programs put their first work on a device (Executor::used_devices), with locks held: quickly.
  std::function<void()> on_device_used;
  // Called once per session at most: blocks of this kernel run on for so long when a gate should end them. With locks
  // held: quickly. Null: nobody wants to know.
  std::function<void(uint64_t session_id, const std::string& kernel, std::chrono::nanoseconds left)> on_long_blocks;
  // Called once: the context is lost, no new sessions are accepted; the process should be replaced.
  std::function<void(const std::string& reason)> on_fault;

  // Tests inject a table; everything about libraries above is then ignored. Must outlive the executor.
  const DriverTable* driver_table_for_testing = nullptr;
};

}  // namespace tally::server
