#include "server/daemon/executor_pool.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/log.h"
#include "base/unix_socket.h"
#include "proto/driver/generated/wire_ops.h"
#include "server/daemon/ledger_file.h"
#include "server/daemon/peer_facts.h"
#include "server/daemon/printable_name.h"

namespace tally::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// An executor tries again every kReconnectMs; eight tries are plenty for one that lives.
constexpr milliseconds kAdoptionWait{8 * control::kReconnectMs};
constexpr milliseconds kFailedStartPause{1000};
constexpr milliseconds kLedgerDelay{1000};
constexpr const char* kLedgerName = "ledger";

std::string DescribeEnd(int wait_status) {
  if (WIFSIGNALED(wait_status)) return fmt::format("was ended by signal {}", WTERMSIG(wait_status));
  return fmt::format("ended with exit status {}", WEXITSTATUS(wait_status));
}

}  // namespace

ExecutorPool::ExecutorPool(EventLoop& loop, RuntimeDir& runtime_dir, ExecutorSpawner spawner,
                           const DaemonConfig& config)
    : loop_(loop), runtime_dir_(runtime_dir), spawner_(std::move(spawner)), config_(config) {}

Status ExecutorPool::Listen(const std::string& socket_path) {
  auto listening = ListenUnix(socket_path, 0600);
  if (!listening) return listening.error();
  listening_ = std::move(*listening);
  if (config_.embedded_parent == 0) {
    KeptLedger kept = LoadLedger(runtime_dir_.PathOf(kLedgerName));
    ledger_ = std::move(kept.ledger);
    gpu_places_ = GpuPlaces(std::move(kept.gpus));
  }
  FindTenantPages();
  for (const pid_t pid : runtime_dir_.LivingExecutors()) awaited_.insert(pid);
  if (!awaited_.empty()) {
    LOG_INFO("waiting for {} executors of an earlier tallyd", awaited_.size());
    loop_.PostDelayed(kAdoptionWait, [this] {
      awaited_.clear();
      RetryHeld();
    });
  }
  return loop_.Watch(listening_.get(), [this] { OnConnection(); });
}

// --- connections ----------------------------------------------------------------------------------------------------

void ExecutorPool::OnConnection() {
  auto socket = AcceptUnix(listening_.get());
  if (!socket) return;
  const auto peer = GetPeerCredentials(socket->get());
  if (!peer || peer->uid != ::geteuid()) {
    LOG_WARNING("a process of user {} is not accepted as an executor", peer ? peer->uid : 0);
    return;
  }
  // The link is a stranger's until it says hello; its events need it, and it needs its events.
  auto holder = std::make_shared<std::shared_ptr<ExecutorLink>>();
  auto link = ExecutorLink::Create(loop_, std::move(*socket), EventsOf(peer->pid, holder));
  if (!link) {
    LOG_ERROR("executor {}: {}", peer->pid, link.error().message());
    return;
  }
  *holder = std::move(*link);
  strangers_.push_back(holder);
}

ExecutorLink::Events ExecutorPool::EventsOf(pid_t pid, const std::shared_ptr<std::shared_ptr<ExecutorLink>>& holder) {
  // Weak: the holder owns the link, which owns these.
  std::weak_ptr<std::shared_ptr<ExecutorLink>> weak = holder;
  auto with_executor = [this, pid](auto action) {
    const ExecutorPtr executor = FindByPid(pid);
    if (executor != nullptr) action(*executor);
  };
  ExecutorLink::Events events;
  events.on_hello = [this, pid, weak](const control::LinkHello& hello) {
    const auto alive = weak.lock();
    if (alive == nullptr) return;  // a second hello
    const std::shared_ptr<ExecutorLink> link = *alive;
    strangers_.remove(alive);
    OnHello(pid, link, hello);
  };
  events.on_report = [this, with_executor](const control::LinkSessionReport& report) {
    with_executor([&](Executor& executor) { OnReport(executor, report); });
  };
  events.on_refused_function = [with_executor](uint32_t symbol_index, uint64_t num_calls) {
    with_executor([&](Executor& executor) { executor.refused_functions[symbol_index] = num_calls; });
  };
  events.on_kernel = [with_executor](const control::LinkKernelReport& report) {
    with_executor([&](Executor& executor) {
      if (executor.kernels.size() < control::kMaxKernelReports) executor.kernels.push_back(report);
    });
  };
  events.on_window_shape = [with_executor](const control::WindowShapeFigures& shape) {
    with_executor([&](Executor& executor) {
      if (executor.window_shapes.size() < control::kMaxWindowShapes) executor.window_shapes.push_back(shape);
    });
  };
  events.on_graph = [with_executor](const control::GraphFigures& graph) {
    with_executor([&](Executor& executor) {
      if (executor.graphs.size() < control::kMaxGraphs) executor.graphs.push_back(graph);
    });
  };
  events.on_time_slices = [this, with_executor](const control::LinkTimeSlices& slices) {
    with_executor([&](Executor& executor) {
      executor.time_slices = slices;
      PlanTimeSlices();
    });
  };
  const auto told = std::make_shared<std::vector<control::LinkGpu>>();
  events.on_gpus = [this, with_executor, told](const control::LinkGpus& gpus) {
    with_executor([&](Executor& executor) {
      executor.gpu_places = gpu_places_.PlacesOf(gpus);
      PlanTimeSlices();
      driver_version_ = gpus.driver_version;
    });
    told->clear();
    told->reserve(gpus.num_gpus);
  };
  events.on_gpu = [this, told](const control::LinkGpu& gpu) {
    if (gpu.ordinal != told->size() || told->size() == told->capacity()) return;
    told->push_back(gpu);
    if (told->size() == told->capacity()) known_gpus_ = *told;  // never half of them
  };
  events.on_report_end = [this, pid, with_executor](uint64_t request_id) {
    if (request_id == 0) with_executor([&](Executor& executor) { OnListed(executor); });
    AnswerArrived(request_id, pid);
  };
  events.on_set_priority_reply = [this](uint64_t request_id, Status status) {
    const auto change = priority_changes_.extract(request_id);
    if (!change.empty()) change.mapped()(std::move(status));
  };
  events.on_long_blocks = [this, with_executor](const control::LinkLongBlocks& found) {
    with_executor([&](Executor& executor) { OnLongBlocks(executor, found); });
  };
  events.on_faulted = [this, with_executor](const std::string& reason) {
    with_executor([&](Executor& executor) { OnFaulted(executor, reason); });
  };
  events.on_idle = [this, with_executor] { with_executor([&](Executor& executor) { OnIdle(executor); }); };
  events.on_leaving = [this, with_executor] { with_executor([&](Executor& executor) { OnLeaving(executor); }); };
  events.on_closed = [this, weak, with_executor] {
    if (const auto alive = weak.lock()) {
      strangers_.remove(alive);
      return;
    }
    with_executor([&](Executor& executor) { OnDisconnected(executor); });
  };
  return events;
}

void ExecutorPool::OnHello(pid_t pid, const std::shared_ptr<ExecutorLink>& link, const control::LinkHello& hello) {
  const bool is_same_build = hello.link_version == control::kLinkVersion && hello.api_table_hash == kApiTableHash &&
                             hello.figures_hash == control::kSessionFiguresHash;
  if (!is_same_build) {
    LOG_WARNING("executor {} is of another build: it ends when its sessions have", pid);
    link->Close();
    StopAwaiting(pid);
    return;
  }
  ExecutorPtr executor = FindByPid(pid);
  if (executor == nullptr) {
    executor = std::make_shared<Executor>();
    executor->pid = pid;
    executor->domain =
        Domain::FromWire(hello.domain_name, hello.owner_uid, static_cast<shm::PriorityClass>(hello.priority_class));
    executor->first_seen = steady_clock::now();
    if (const Status watched = WatchEnd(executor); !watched.ok()) {
      LOG_WARNING("executor {}: {}", pid, watched.message());
      link->Close();
      return;
    }
    executors_.push_back(executor);
    runtime_dir_.NoteExecutor(pid);
    LOG_INFO("adopted executor {} of domain {}", pid, executor->domain.Label());
  }
  if (executor->link != nullptr) executor->link->Close();
  executor->link = link;
  executor->driver_name = hello.driver_name;
  executor->policy = {};
  executor->configured_policy = hello.policy_name;
  executor->is_software = hello.is_software != 0;
  executor->num_devices = hello.num_devices;
  if (hello.status_code != 0) {
    executor->state = ExecutorState::kRetiring;
    executor->error = hello.error;
    // It waits for this, so that its end is not seen before its reason; OnExit tells those who wait.
    [[maybe_unused]] const Status sent = link->SendSignal(control::LinkKind::kShutdown, 0);
    return;
  }
  for (auto& [id, session] : executor->sessions) session.is_in_doubt = true;  // its reports follow
  executor->has_served = true;
  const bool is_leaving = executor->state == ExecutorState::kLeaving;
  if (hello.is_faulted != 0 || is_shutting_down_ || (executor->is_end_expected && !is_leaving)) {
    executor->state = ExecutorState::kRetiring;
  } else if (!is_leaving) {
    executor->state = ExecutorState::kServing;
  }
  executor->wanted_time_slice.reset();
  PlanTimeSlices();  // before it has a session, and with that a context
  executor->wanted_tuning.reset();
  PlanTuning();
  failed_starts_.erase(executor->domain.CounterLabel());
  LOG_INFO("executor {} serves domain {} with {}", pid, executor->domain.Label(), executor->driver_name);
  if (executor->state == ExecutorState::kServing) DeliverWaiting(executor);
}

void ExecutorPool::KeepLedger() {
  if (is_ledger_due_ || config_.embedded_parent != 0) return;
  is_ledger_due_ = true;
  loop_.PostDelayed(kLedgerDelay, [this] {
    is_ledger_due_ = false;
    SaveLedger(runtime_dir_.PathOf(kLedgerName), ledger_, gpu_places_.names());
  });
}

void ExecutorPool::OnReport(Executor& executor, const control::LinkSessionReport& report) {
  const bool is_new = !executor.sessions.contains(report.identity.session_id);
  const control::SessionFigures figures = ByPlaces(report.figures, executor.gpu_places);
  if (report.has_ended != 0) {
    ledger_.AddEnded(report.identity, figures);
    KeepLedger();
    executor.sessions.erase(report.identity.session_id);
    LeaveTenantPage(report.identity);
  } else {
    SessionRecord& session = executor.sessions[report.identity.session_id];
    std::string cgroup = is_new ? CgroupOf(report.identity.pid) : std::move(session.cgroup);
    auto program = is_new ? ProgramOf(report.identity) : std::move(session.program);
    session = {report.identity, figures, false, false, std::move(cgroup), std::move(program)};
  }
  if (is_new || report.has_ended != 0) {
    OnTenantsChanged();
  } else if (report.identity.slo_latency_ns != 0) {
    PlanTuning();
  }
  PlanTimeSlices();
}

void ExecutorPool::OnLongBlocks(const Executor& executor, const control::LinkLongBlocks& found) {
  const auto session = executor.sessions.find(found.session_id);
  if (session == executor.sessions.end() || !session->second.program) return;  // it has ended, or is not known
  const std::string what = fmt::format("blocks of kernel {:.200} ran on for {:.1f} ms", PrintableName(found.kernel),
                                       static_cast<double>(found.left_ns) * 1e-6);
  if (!LongBlocks(config_.cache_directory).Remember(*session->second.program, what)) return;
  LOG_INFO("session {} ({}): {}: the next time that this program starts it gets a context of its own", found.session_id,
           session->second.identity.tenant_name, what);
}

void ExecutorPool::OnFaulted(Executor& executor, const std::string& reason) {
  LOG_WARNING("executor {} of domain {} lost its context: {}", executor.pid, executor.domain.Label(), reason);
  ++domains_.Of(executor.domain).faults;
  executor.state = ExecutorState::kRetiring;
  executor.is_end_expected = true;
  NoteFault(executor);
  PlaceWaitingAnew(executor);
  PlanTimeSlices();
}

void ExecutorPool::NoteFault(const Executor& executor) {
  if (config_.embedded_parent != 0) return;  // whoever runs a private tallyd costs nobody else anything
  const std::string owner = executor.domain.OwnerLabel();
  fault_back_off_.OnFault(owner, SteadyClock().Now());
  const auto pause = fault_back_off_.PauseOf(owner, SteadyClock().Now());
  if (pause.count() == 0) return;
  loop_.PostDelayed(std::chrono::ceil<milliseconds>(pause), [this] { RetryHeld(); });
}

void ExecutorPool::OnIdle(Executor& executor) {
  const bool may_end = executor.state == ExecutorState::kServing || executor.state == ExecutorState::kLeaving;
  if (!executor.sessions.empty() || !may_end || executor.link == nullptr) return;
  executor.state = ExecutorState::kRetiring;
  executor.is_end_expected = true;
  // If this does not arrive the executor is gone already, which is what was wanted.
  [[maybe_unused]] const Status sent = executor.link->SendSignal(control::LinkKind::kShutdown, 0);
}

void ExecutorPool::OnLeaving(Executor& executor) {
  if (executor.state != ExecutorState::kServing) return;
  executor.state = ExecutorState::kLeaving;
  executor.is_end_expected = true;  // it has done nothing wrong: others of its owner start at once
  PlaceWaitingAnew(executor);
  PlanTimeSlices();
}

void ExecutorPool::OnDisconnected(Executor& executor) {
  executor.link.reset();
  // Most likely it is dying and OnExit follows at once. If it lives it connects again and reports its sessions.
  if (executor.state == ExecutorState::kServing) executor.state = ExecutorState::kDisconnected;
  AnswersFailed(executor.pid);
}

void ExecutorPool::OnExit(pid_t pid) {
  const ExecutorPtr executor = FindByPid(pid);
  if (executor == nullptr) return;
  loop_.Unwatch(executor->pidfd.get());
  // Its last words may still be in the socket.
  if (const auto link = executor->link) link->Drain();
  if (executor->link != nullptr) executor->link->Close();
  std::string how = "ended";
  if (executor->is_child) {
    int wait_status = 0;
    if (::waitpid(pid, &wait_status, WNOHANG) == pid) how = DescribeEnd(wait_status);
  }
  executors_.remove(executor);
  runtime_dir_.ForgetExecutor(pid);
  EndSessions(*executor);
  for (const auto& [symbol, count] : executor->refused_functions) ended_refused_functions_[symbol] += count;

  const std::string label = executor->domain.Label();
  if (!executor->is_end_expected) {
    ++domains_.Of(executor->domain).failures;
    LOG_WARNING("executor {} of domain {} {}", pid, label, how);
    if (executor->has_served) NoteFault(*executor);
  }
  if (executor->has_served) {
    PlaceWaitingAnew(*executor);
  } else if (!executor->waiting.empty()) {
    const std::string why =
        executor->error.empty() ? fmt::format("its executor {} before it was ready", how) : executor->error;
    const Status status(StatusCode::kUnavailable, fmt::format("domain {}: {}", label, why));
    std::erase_if(failed_starts_,
                  [](const auto& each) { return steady_clock::now() - each.second.at >= kFailedStartPause; });
    failed_starts_[executor->domain.CounterLabel()] = {steady_clock::now(), status};
    if (executor->domain.shares_otherwise) {
      PlaceWaitingAnew(*executor);
    } else {
      RefuseWaiting(*executor, status);
    }
  }
  AnswersFailed(pid);
  StopAwaiting(pid);
  RetryHeld();  // one domain less
  PlanTimeSlices();
  PlanTuning();
  ending_.erase(pid);
  CheckShutdown();
}

// --- processes ------------------------------------------------------------------------------------------------------

Result<ExecutorPool::ExecutorPtr> ExecutorPool::Start(const Domain& domain) {
  const std::string label = domain.Label();
  const auto failed = failed_starts_.find(domain.CounterLabel());
  if (failed != failed_starts_.end()) {
    if (steady_clock::now() - failed->second.at < kFailedStartPause) return std::unexpected(failed->second.status);
    failed_starts_.erase(failed);
  }
  if (const size_t num_domains = NumDomainsOf(domain.OwnerLabel()); num_domains >= config_.max_domains_per_user) {
    return Error(StatusCode::kResourceExhausted,
                 fmt::format("domain {}: there are {} domains already, as many as tallyd allows (max_domains_per_user)",
                             label, num_domains));
  }
  if (before_start_) before_start_();
  const bool is_beside_service = std::any_of(executors_.begin(), executors_.end(), [](const ExecutorPtr& each) {
    return each->domain.priority_class == shm::PriorityClass::kHighPriority && each->state != ExecutorState::kRetiring;
  });
  const auto pid = spawner_.Spawn(domain, is_beside_service);
  if (!pid) return std::unexpected(pid.error());
  auto executor = std::make_shared<Executor>();
  executor->pid = *pid;
  executor->domain = domain;
  executor->is_child = true;
  executor->first_seen = steady_clock::now();
  if (const Status watched = WatchEnd(executor); !watched.ok()) {
    ::kill(*pid, SIGKILL);
    ::waitpid(*pid, nullptr, 0);
    return std::unexpected(watched);
  }
  executors_.push_back(executor);
  runtime_dir_.NoteExecutor(*pid);
  ++domains_.Of(domain).starts;
  LOG_INFO("started executor {} for domain {}", *pid, label);
  const std::weak_ptr<Executor> weak = executor;
  loop_.PostDelayed(config_.executor_start_limit, [this, weak] {
    const ExecutorPtr late = weak.lock();
    if (late == nullptr || late->state != ExecutorState::kStarting) return;
    late->state = ExecutorState::kRetiring;
    late->error = fmt::format("its executor was not ready after {} s", config_.executor_start_limit.count());
    ::kill(late->pid, SIGKILL);
  });
  return executor;
}

Status ExecutorPool::WatchEnd(const ExecutorPtr& executor) {
  executor->pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, executor->pid, 0)));
  if (!executor->pidfd.valid()) return StatusFromErrno(errno, fmt::format("pidfd_open {}", executor->pid));
  const pid_t pid = executor->pid;
  return loop_.Watch(executor->pidfd.get(), [this, pid] { OnExit(pid); });
}

void ExecutorPool::StopAwaiting(pid_t pid) {
  if (awaited_.erase(pid) > 0 && awaited_.empty()) RetryHeld();
}

// Each counts from now on only once it has its place.
void ExecutorPool::RetryHeld() {
  auto held = std::exchange(held_, {});
  for (Held& each : held) Place(each.domain, std::move(each.waiting));
}

size_t ExecutorPool::NumDomainsOf(const std::string& owner) const {
  const auto count = std::count_if(executors_.begin(), executors_.end(),
                                   [&](const ExecutorPtr& each) { return each->domain.OwnerLabel() == owner; });
  return static_cast<size_t>(count);
}

void ExecutorPool::End(Executor& executor) {
  // What only starts has no sessions, and may hang in the driver.
  const int signal = executor.state == ExecutorState::kStarting ? SIGKILL : SIGTERM;
  executor.is_end_expected = true;
  executor.state = ExecutorState::kRetiring;
  const bool was_told = executor.link != nullptr && executor.link->SendSignal(control::LinkKind::kShutdown, 0).ok();
  if (!was_told) ::kill(executor.pid, signal);
}

void ExecutorPool::Shutdown(bool all, milliseconds limit, std::function<void()> done) {
  is_shutting_down_ = true;
  shutdown_done_ = std::move(done);
  RetryHeld();  // they are refused now
  for (const ExecutorPtr& executor : std::list(executors_)) {
    RefuseWaiting(*executor, Status(StatusCode::kUnavailable, "tallyd is ending"));
    if (!all && !executor->sessions.empty()) continue;
    ending_.insert(executor->pid);
    End(*executor);
  }
  loop_.PostDelayed(limit, [this, all] {
    for (const pid_t pid : all ? ending_ : std::set<pid_t>()) ::kill(pid, SIGKILL);
    if (all) return;  // OnExit follows
    ending_.clear();
    CheckShutdown();
  });
  CheckShutdown();
}

void ExecutorPool::CheckShutdown() {
  if (!is_shutting_down_ || !ending_.empty() || shutdown_done_ == nullptr) return;
  if (config_.embedded_parent == 0) SaveLedger(runtime_dir_.PathOf(kLedgerName), ledger_, gpu_places_.names());
  std::exchange(shutdown_done_, nullptr)();
}

}  // namespace tally::server
