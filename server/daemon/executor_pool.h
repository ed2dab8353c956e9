// All executors of this tallyd: starts them on demand, adopts those of an earlier tallyd, replaces those that die.
//
//            Open()                    Hello                     Faulted, Idle, Shutdown
//   (none) ----------> kStarting ----------------> kServing ------------------------------> kRetiring ----> (gone)
//                          |  Hello with an error, start limit                                 the process ends
//                          +---------------------------------------> kRetiring; waiting clients are refused
//
//   kServing <--> kDisconnected when its connection is lost and comes back.
//   kServing ---> kLeaving when it asks for no new sessions; Idle ends it, once those that it has are over.
//
// An executor that leaves or retires gets no new session: the next Open() of its domain starts a fresh one. An entry
// lives exactly as long as its process (a pidfd tells the end), whatever its connection does, and counts as a domain
// for so long.
//
// Lives on the daemon's loop; callbacks are called there, perhaps before the method returns.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/event_loop.h"
#include "scheduler/tuning.h"
#include "server/daemon/config.h"
#include "server/daemon/domain.h"
#include "server/daemon/domain_counters.h"
#include "server/daemon/executor_link.h"
#include "server/daemon/executor_spawner.h"
#include "server/daemon/fault_back_off.h"
#include "server/daemon/gpu_places.h"
#include "server/daemon/long_blocks.h"
#include "server/daemon/runtime_dir.h"
#include "server/daemon/tenant_ledger.h"
#include "server/daemon/time_slice_plan.h"

namespace tally::server {

// A session as tallyd knows it: who, and the figures of the last report.
struct SessionRecord {
  control::SessionIdentity identity{};
  control::SessionFigures figures{};
  bool is_stale = false;     // the executor did not answer the last query in time
  bool is_in_doubt = false;  // its executor has connected again and has not mentioned it yet
  std::string cgroup;        // of its process, when it was first seen (peer_facts.h)
  // Likewise, if the session might have been put apart (long_blocks.h), or an earlier tallyd's.
  std::optional<StartedProgram> program{};
};

enum class ExecutorState {
  kStarting,      // no Hello yet
  kServing,       // takes sessions
  kDisconnected,  // its connection is gone: it is dying, or connects again in a moment
  kLeaving,       // takes no session any more; those that it has go on
  kRetiring,      // is to end; its process still runs
};

class ExecutorPool {
 public:
  using Done = std::function<void(Status)>;

  struct Executor {
    pid_t pid = 0;
    Domain domain;
    ExecutorState state = ExecutorState::kStarting;
    bool is_child = false;
    bool is_end_expected = false;  // it said or was told that it ends: its death is no failure
    std::chrono::steady_clock::time_point first_seen;
    UniqueFd pidfd;
    std::shared_ptr<ExecutorLink> link;  // null until Hello and after a disconnection
    std::string driver_name;
    std::string configured_policy;  // as it was started with
    bool is_software = false;
    scheduler::PolicyChoice policy;  // in force; empty until Hello
    std::string error;               // why it could not start
    uint32_t num_devices = 0;
    std::vector<size_t> gpu_places;  // of its ordinals (gpu_places.h)
    // By its ordinals: whether its programs work there.
    std::vector<UsedGpu> used_gpus() const { return UsedGpus(num_devices, gpu_places, time_slices.used_gpus); }
    struct WantedTimeSlice {
      std::vector<std::chrono::microseconds> slices;  // by its ordinals
      bool is_left_to_slices;
      bool operator==(const WantedTimeSlice&) const = default;
    };
    std::optional<WantedTimeSlice> wanted_time_slice;  // as it was told
    control::LinkTimeSlices time_slices{};             // as it reads them back
    std::optional<scheduler::Tuning> wanted_tuning;    // as it was told
    std::map<uint64_t, SessionRecord> sessions;
    std::vector<control::LinkKernelReport> kernels;          // of the last QueryKernels
    std::vector<control::WindowShapeFigures> window_shapes;  // of the last QueryWindowShapes
    std::vector<control::GraphFigures> graphs;               // of the last QueryGraphs
    UniqueFd trace_file;                                     // of the last Trace; not valid: it was not asked
    std::map<uint32_t, uint64_t> refused_functions;          // calls by row of driver_api.tsv, since it started

    struct Waiting {
      control::SessionIdentity identity;
      UniqueFd socket;
      Done done;
      std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
      bool was_held = false;
      std::optional<StartedProgram> program{};  // as in SessionRecord
    };
    std::deque<Waiting> waiting;  // until it serves, and until its socket takes them
    bool has_served = false;
    bool is_delivery_due = false;
  };

  // Everything but `config` must outlive the pool.
  ExecutorPool(EventLoop& loop, RuntimeDir& runtime_dir, ExecutorSpawner spawner, const DaemonConfig& config);

  // Executors of an earlier tallyd may still come back.
  bool MayStillBeAdopted() const { return !awaited_.empty(); }
  // Called before an executor is started, for a session that waits.
  void SetBeforeStart(std::function<void()> action) { before_start_ = std::move(action); }

  // Listens for executors at `socket_path`. Those noted in the runtime directory by an earlier tallyd are awaited:
  // until they have come back or kAdoptionWait is over, no new executor is started.
  Status Listen(const std::string& socket_path);

  // Hands `socket` to the executor of `domain`, which is started if need be. Instead of one of both classes it may be
  // that of a domain of its own (long_blocks.h). `done` gets OK once the executor has it;
  // kResourceExhausted: no more sessions or domains, for this user or at all.
  void Open(const Domain& domain, const control::SessionIdentity& identity, UniqueFd socket, Done done);
  // The class that a domain of this name and owner has now, if it exists.
  std::optional<shm::PriorityClass> ClassOf(const Domain& domain) const;
  size_t NumSessions() const;
  // Of the same grant; without one, of the same user.
  size_t NumSessionsLike(const control::SessionIdentity& identity) const;

  // Asks every executor for its figures; calls `done` when all have answered or `limit` is over.
  void Query(std::chrono::milliseconds limit, std::function<void()> done);
  // `late`: who had not answered by then.
  using Answered = std::function<void(const std::set<pid_t>& late)>;
  // The same for what it knows about kernels (Executor::kernels).
  void QueryKernels(std::chrono::milliseconds limit, Answered done);
  // Likewise of the shapes of windows (Executor::window_shapes).
  void QueryWindowShapes(std::chrono::milliseconds limit, Answered done);
  // Likewise of sessions' graphs (Executor::graphs).
  void QueryGraphs(std::chrono::milliseconds limit, Answered done);
  // Has a session's executor draw one of its graphs; what `done` gets is empty if that is launched as a whole, or is
  // not there.
  void DrawGraph(uint64_t session_id, uint32_t number, std::chrono::milliseconds limit,
                 std::function<void(std::string)> done);
  // Has every executor record what its sessions, or those of one user and his grants, do for so long
  // (Executor::trace_file).
  void Trace(std::chrono::nanoseconds duration, std::optional<uint32_t> uid, std::function<void()> done);
  // Executors that record stop now, and answer as if the time were over.
  void EndTraces();
  void SetPriority(uint64_t session_id, const control::ShareChange& change, Done done);
  // Which grants there are, for sessions of executors that come back.
  void SetGrantCheck(std::function<bool(uint64_t grant_id)> is_there) { is_grant_there_ = std::move(is_there); }
  // Ends all sessions of a grant that is no more, and the executors of its tenant alone; those that wait get `why`.
  // Executors that are not connected are told when they are.
  void EndGrant(uint64_t grant_id, const std::string& tenant, const Status& why);
  // What was measured on this machine's GPU (switch_figures.h).
  void SetTimeSlicesAct(bool they_act);
  // For executors started from now on, and for the limit of their number (reload.h). Leaves the turnaround threshold.
  void Reconfigure(DaemonConfig config);
  // Whether the policy of executors to come honours it (policy_rules.h).
  Status CheckHonoured(scheduler::Setting setting) const;
  Status CheckHonoured(const GrantSpec& grant) const;
  // Whether the machine has any of its GPUs, as far as executors have told; kFailedPrecondition: one sentence.
  Status CheckGpus(const GrantSpec& grant) const;
  // `named`, as a grant names GPUs: places in known_gpus().
  std::vector<int> KnownGpus(std::string_view named) const;
  // Of all executors, and of those to come.
  void SetTurnaroundThreshold(std::chrono::nanoseconds threshold);

  // Ends executors without sessions, or all of them; calls `done` when those are gone. After `limit` with `all`, they
  // are killed. No Open() after this.
  void Shutdown(bool all, std::chrono::milliseconds limit, std::function<void()> done);

  const std::list<std::shared_ptr<Executor>>& executors() const { return executors_; }
  // What all executors are to work with.
  scheduler::Tuning tuning() const;
  const TenantLedger& ledger() const { return ledger_; }
  // By the places that figures by GPU have here: all that executors have named.
  const std::vector<std::string>& gpus() const { return gpu_places_.names(); }
  // Of the machine, by ordinal, as the executor said that told last; empty: none has yet. CUDA's version likewise.
  const std::vector<control::LinkGpu>& known_gpus() const { return known_gpus_; }
  uint32_t driver_version() const { return driver_version_; }
  const std::map<std::string, DomainCounters>& counters() const { return domains_.counters(); }
  // Calls that were refused, by the function's name, of all executors that there were.
  std::map<std::string, uint64_t> RefusedFunctions() const;

 private:
  using ExecutorPtr = std::shared_ptr<Executor>;

  struct Inquiry {  // one Query()
    std::set<pid_t> awaited;
    Answered done;
  };

  void OnConnection();
  ExecutorLink::Events EventsOf(pid_t pid, const std::shared_ptr<std::shared_ptr<ExecutorLink>>& link);
  void OnHello(pid_t pid, const std::shared_ptr<ExecutorLink>& link, const control::LinkHello& hello);
  void OnReport(Executor& executor, const control::LinkSessionReport& report);
  void OnLongBlocks(const Executor& executor, const control::LinkLongBlocks& found);
  void OnFaulted(Executor& executor, const std::string& reason);
  void OnIdle(Executor& executor);
  void OnLeaving(Executor& executor);
  // After every change of who is serving.
  void PlanTimeSlices();
  // Which policy is in force: after a Hello, and when the driver's answer or the classes of its sessions have changed.
  void ChoosePolicy(Executor& executor);
  // After every change of what objectives ask for, of the threshold and of who is serving.
  void PlanTuning();
  // Whether it was sent.
  bool SendTuning(Executor& executor, const scheduler::Tuning& tuning);
  // They have come, have gone or are entitled to something else.
  void OnTenantsChanged();
  void OnDisconnected(Executor& executor);
  void OnExit(pid_t pid);

  // Its reports since Hello are complete.
  void OnListed(Executor& executor);
  // Within a second: what a tenant has done has changed for good.
  void KeepLedger();
  void NoteFault(const Executor& executor);
  // It takes no more sessions, and those that it has end with it.
  void End(Executor& executor);
  // Those of its sessions for which this holds; it ends itself if it is one tenant's.
  template <typename Predicate>
  void EndSessionsIf(Executor& executor, const std::string& reason, const Predicate& is_to_end);

  ExecutorPtr FindByPid(pid_t pid) const;
  ExecutorPtr FindForNewSession(const Domain& domain) const;
  Result<ExecutorPtr> Start(const Domain& domain);
  Status WatchEnd(const ExecutorPtr& executor);
  void Place(const Domain& domain, Executor::Waiting waiting);
  Status CheckQuotas(const control::SessionIdentity& identity) const;
  // Not OK: none may be started for the domain now, but soon.
  Status CheckMayStart(const Domain& domain) const;
  size_t NumDomainsOf(const std::string& owner) const;
  void DeliverWaiting(const ExecutorPtr& executor);
  Status Deliver(Executor& executor, Executor::Waiting& waiting);
  void RefuseWaiting(Executor& executor, const Status& why);
  // To another executor of the domain.
  void PlaceWaitingAnew(Executor& executor);
  void EndSessions(Executor& executor);
  // `send` says whether the executor was asked.
  void Ask(const std::function<bool(Executor&, uint64_t request_id)>& send, std::chrono::milliseconds limit,
           Answered done);
  // The session has ended: removes the page of its tenant (tenant_files.h) if no other session needs it, or later.
  void LeaveTenantPage(const control::SessionIdentity& ended);
  void RemoveTenantPages();
  // Those that an earlier tallyd has left.
  void FindTenantPages();
  std::set<std::string> NeededTenantPages() const;
  void Ask(control::LinkKind question, std::chrono::milliseconds limit, Answered done);
  void AnswerArrived(uint64_t inquiry_id, pid_t pid);
  void AnswersFailed(pid_t pid);
  void StopAwaiting(pid_t pid);
  void RetryHeld();
  void CheckShutdown();

  EventLoop& loop_;
  RuntimeDir& runtime_dir_;
  ExecutorSpawner spawner_;
  DaemonConfig config_;
  bool time_slices_act_ = true;  // as far as is known
  std::function<void()> before_start_;
  std::function<bool(uint64_t)> is_grant_there_ = [](uint64_t) { return true; };
  UniqueFd listening_;
  // Connections whose Hello has not come yet.
  std::list<std::shared_ptr<std::shared_ptr<ExecutorLink>>> strangers_;
  std::list<ExecutorPtr> executors_;
  TenantLedger ledger_;
  bool is_ledger_due_ = false;
  GpuPlaces gpu_places_;
  std::vector<control::LinkGpu> known_gpus_;
  uint32_t driver_version_ = 0;
  DomainBook domains_;
  std::map<uint32_t, uint64_t> ended_refused_functions_;  // of executors that are gone

  std::set<pid_t> awaited_;  // executors of an earlier tallyd that have not come back yet
  // Sessions that wait for them (no session counts can be trusted before that), or until an executor may be started.
  struct Held {
    Domain domain;
    Executor::Waiting waiting;
  };
  std::list<Held> held_;
  std::set<std::string> left_pages_;  // names of those that could not be removed yet
  bool is_removal_due_ = false;
  FaultBackOff fault_back_off_;  // by Domain::OwnerLabel

  uint64_t next_request_id_ = 1;
  std::map<uint64_t, Inquiry> inquiries_;
  std::map<uint64_t, Done> priority_changes_;

  // The last failed start per domain: clients that come at once again are refused with its sentence, not with a fork.
  struct FailedStart {
    std::chrono::steady_clock::time_point at;
    Status status;
  };
  std::map<std::string, FailedStart> failed_starts_;

  bool is_shutting_down_ = false;
  std::function<void()> shutdown_done_;
  std::set<pid_t> ending_;  // executors that Shutdown waits for
};

}  // namespace tally::server
