// The executor of one domain: owns the CUDA context of every device it uses and serves client sessions.
//
// Front desk of tally-executor. Sessions arrive as one end of a socket pair whose other end the client got from tallyd
// (proto/shm/handshake_abi.h). Each session has a socket thread and one thread per lane (server/executor/session).
//
// Thread-safe unless a method says otherwise. Callbacks run on threads of the executor, never while it holds a lock:
// they may call any method except Shutdown.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "proto/control/coverage.h"
#include "proto/control/session_figures.h"
#include "proto/shm/handshake_abi.h"
#include "scheduler/launch.h"
#include "scheduler/policy_choice.h"
#include "scheduler/slo_feedback.h"

namespace tally::server {

class HighPriorityWatch;
struct DriverTable;
struct KernelReport;  // kernel_report.h

enum class DriverChoice {
  kAuto,  // the real driver if it opens, initialises and has a device; else the software driver, with one log line
  kCuda,  // only libcuda.so.1
  kSim,   // only libtally-sim-driver.so
};

// In which forms kernels of best-effort tenants may run besides the one they came in.
enum class Transforms {
  kNone,
  kSlices,   // cut into several launches
  kWorkers,  // persistent worker blocks that yield
  kGate,     // queues that one store empties
  kAll,
};

// What one session may use. Asking for more is answered with CUDA_ERROR_OUT_OF_MEMORY (memory) or evicts (handles).
struct SessionLimits {
  uint64_t device_memory_bytes = 0;  // 0: whatever the device has
  uint64_t pinned_bytes = 0;         // 0: half of the machine's memory
  uint64_t image_bytes = uint64_t{8} << 30;
  uint32_t lanes = shm::kMaxLanesPerSession;
  uint64_t output_bytes = uint64_t{4} << 20;  // of device printf, not fetched yet
  uint32_t handles_per_kind = 1u << 20;
  // How long a client may take to acknowledge a host function before its session is evicted; the shorter one while a
  // call of another session waits for everything in the context.
  std::chrono::milliseconds host_function_timeout{300'000};
  std::chrono::milliseconds host_function_patience{10'000};
};

// What the sessions of one user may hold in one executor, together.
struct UserLimits {
  uint64_t pinned_bytes = 0;  // 0: half of the machine's memory
  uint64_t image_bytes = uint64_t{16} << 30;
  uint32_t lanes = 2048;
  uint64_t output_bytes = uint64_t{64} << 20;
};

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
  bool keeps_kernels = false;         // they run as they are, whatever ExecutorConfig::transforms says
  std::optional<scheduler::Slo> slo;  // of a high-priority session: how soon its requests should be done
  // How soon its kernels should give the GPU back; zero: ExecutorConfig::turnaround_threshold.
  std::chrono::nanoseconds turnaround{0};
};

// What of a session's entitlement is to be different from now on.
struct ShareChange {
  shm::PriorityClass priority_class = shm::PriorityClass::kDefault;  // kDefault: as it is
  std::optional<uint32_t> weight;
  std::optional<uint32_t> level;
  std::optional<std::chrono::nanoseconds> turnaround;  // zero: the executor's
};

// A consistent-enough copy for ps and metrics; counters only grow.
struct SessionSnapshot {
  SessionIdentity identity;
  std::chrono::nanoseconds age{0};
  control::SessionFigures figures{};
  uint32_t num_lanes = 0;
  bool is_draining = false;  // the client is gone, its work is being ended
};

// A function that Tally does not offer, and how often it was called.
struct RefusedFunction {
  uint32_t symbol_index = 0;  // row of driver_api.tsv
  uint64_t num_calls = 0;
};

struct SessionEnd {
  SessionIdentity identity;
  SessionSnapshot last;
  std::string reason;  // one sentence: "client closed the connection", "malformed record: ..."
  bool evicted = false;
};

struct ExecutorConfig {
  std::string domain_name;
  shm::PriorityClass priority_class = shm::PriorityClass::kBestEffort;
  // Sessions of both classes are to come: streams of high-priority ones go first on the GPU.
  bool are_classes_mixed = false;
  DriverChoice driver = DriverChoice::kAuto;
  std::string cuda_library_path;  // empty: search (TALLY_REAL_LIBCUDA, then the usual directories)
  std::string sim_library_path;   // full path of libtally-sim-driver.so; empty: TALLY_SIM_DRIVER, then beside the
                                  // program and in ../lib
  SessionLimits limits;
  UserLimits user_limits;
  uint32_t max_sessions = 256;
  // The machine's activity page, shared with tallyd's other executors. Empty: launches are never held back.
  std::string activity_path;
  // How best-effort launches are held back and shared: a name of scheduler/policy_list.h, scheduler::kLookAheadPolicy,
  // or scheduler::kAutoPolicy (that one, until LeaveToTimeSlices says otherwise).
  std::string policy = scheduler::kLookAheadPolicy;
  // Variants of best-effort kernels (server/executor/issue): which there are, where they and what was measured are kept
  // (empty: nowhere), and within which time a kernel should give the GPU back.
  Transforms transforms = Transforms::kNone;
  std::string cache_directory;
  std::chrono::nanoseconds turnaround_threshold{31'600};
  // Launches go without gates once no high-priority work has come for so long; zero: never.
  std::chrono::milliseconds gates_rest_after{1000};
  // Best-effort work that has waited so long behind high-priority work gets one launch through; zero: it waits.
  std::chrono::nanoseconds starvation_bound{0};
  // Device printf: makes descriptor 1 of this process a pipe and hands what arrives there to the sessions.
  bool capture_stdout = false;

  // Called once per session, after everything it made is gone.
  std::function<void(const SessionEnd&)> on_session_end;
  // The caution that some session's objective asks for has changed: Snapshot() has it.
  std::function<void()> on_caution;
  // Called before the context of a device is made, with its ordinal, and after that with -1; never for two at a
  // time.
  std::function<void(int device)> on_making_context;
  // Called once: the context is lost, no new sessions are accepted; the process should be replaced.
  std::function<void(const std::string& reason)> on_fault;

  // Tests inject a table; everything about libraries above is then ignored. Must outlive the executor.
  const DriverTable* driver_table_for_testing = nullptr;
};

class Executor {
 public:
  // Opens and initialises the driver. kUnavailable: no usable driver; the message says what was tried.
  static Result<std::unique_ptr<Executor>> Create(ExecutorConfig config);
  // Calls Shutdown.
  virtual ~Executor() = default;

  // Serves `session_socket` (SOCK_SEQPACKET) until its other end closes. kUnavailable: faulted or shutting down;
  // kResourceExhausted: too many sessions; kAlreadyExists: the id is in use.
  virtual Status AddSession(UniqueFd session_socket, SessionIdentity identity) = 0;
  virtual std::vector<SessionSnapshot> Snapshot() const = 0;
  // Functions that were refused since the executor started, all sessions together.
  virtual std::vector<RefusedFunction> RefusedFunctions() const = 0;
  // kNotFound: no such session.
  virtual Status SetPriority(uint64_t session_id, const ShareChange& change) = 0;
  // Kernels of best-effort tenants, by GPU time, the most first.
  virtual std::vector<KernelReport> Kernels() const = 0;
  // Turnaround threshold, hold-off and drain budget, from the next launch on.
  virtual void Tune(const scheduler::Tuning& tuning) = 0;
  // Whether this executor's context on a device is suspended while high-priority work keeps coming there. From the next
  // launch on.
  virtual void ExpectSuspension(int device, bool is_expected) = 0;
  // Whether the GPU's time slices alone keep the classes apart, with kAutoPolicy: then no launch is held back. From the
  // next one on.
  virtual void LeaveToTimeSlices(bool is_left) = 0;
  // What is known of high-priority work on this machine; null: nobody has priority, ever. Lives as long as this.
  virtual HighPriorityWatch* high_priority_watch() = 0;
  // Ends a session as if it had misbehaved. kNotFound: no such session.
  virtual Status Evict(uint64_t session_id, const std::string& reason) = 0;

  // The context is lost: every session has its sticky error, new ones are refused.
  virtual bool faulted() const = 0;
  // "libcuda.so.1 (driver 13000) at /usr/lib/..." or "software driver ...".
  virtual const std::string& driver_description() const = 0;
  virtual bool is_software() const = 0;
  virtual int num_devices() const = 0;

  // Ends every session and releases the contexts. Idempotent. Not from a callback.
  virtual void Shutdown() = 0;
};

}  // namespace tally::server
