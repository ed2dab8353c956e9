#include "server/executor/process/domain_process.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/log.h"
#include "proto/control/tenant_page_name.h"
#include "proto/driver/generated/wire_ops.h"
#include "server/executor/dispatch/high_priority_watch.h"
#include "server/executor/executor.h"
#include "server/executor/process/context_turns.h"
#include "server/executor/process/daemon_link.h"
#include "server/executor/process/departed_work.h"
#include "server/executor/process/gpu_channel_groups.h"

namespace tally::server {
namespace {

// After a fault the sessions' last replies (with the sticky error) get this long to reach their clients.
constexpr std::chrono::milliseconds kFaultLinger{2000};
// Closing a driver whose GPU is stuck may hang: then the kernel ends the process.
constexpr unsigned kExitLimitSeconds = 10;
// Between looks at sessions whose client is gone, and while there are some that still have work.
constexpr std::chrono::milliseconds kLookAtDeparted{1000};
constexpr std::chrono::milliseconds kLookAtDraining{200};
// Work of a program that is gone, for so long: whoever comes now gets another executor. If nobody else is here it ends.
constexpr std::chrono::seconds kRetireAfter{1};
// Until one that leaves asks whether it may end, its last session being over.
constexpr std::chrono::milliseconds kIdleOfLeaving{100};
// A session has its contexts by then, as a rule.
constexpr std::chrono::milliseconds kSettleTime{1000};

class DomainProcess {
 public:
  DomainProcess(EventLoop& loop, ExecutorOptions options)
      : loop_(loop),
        options_(std::move(options)),
        link_(loop, options_.control_socket, MakeEvents()),
        context_turns_(loop, options_, link_),
        departed_work_(options_.departed_work_limit) {}

  // From the ground up: the executor (its parts: executor_parts.cc), the turns of its contexts, the link to tallyd.
  int Run() {
    StartExecutor();
    if (executor_ != nullptr) context_turns_.Start(*executor_);
    link_.Connect();
    if (executor_ == nullptr) return EndWithoutExecutor();
    WaitForIdle();
    loop_.Run();
    ::alarm(kExitLimitSeconds);
    context_turns_.Stop();
    executor_->Shutdown();
    return is_faulted_ ? 3 : 0;
  }

  void End() { loop_.Quit(); }  // tallyd counts the sessions that end with us from their last report

 private:
  ExecutorConfig MakeConfig() {
    ExecutorConfig config = options_.config;
    config.capture_stdout = true;
    config.activity_path = std::filesystem::path(options_.control_socket).replace_filename("activity");
    config.tenants_directory =
        std::filesystem::path(options_.control_socket).replace_filename(control::kTenantsDirectory);
    // The name of a domain holds an '@' only before its owner.
    const size_t at = std::min(config.domain_name.find('@'), config.domain_name.size());
    config.doors = {std::filesystem::path(options_.control_socket).parent_path(),
                    fmt::format("{}{}", options_.owner_uid, config.domain_name.substr(at))};
    config.on_session_end = [this](const SessionEnd& end) { loop_.Post([this, end] { OnSessionEnd(end); }); };
    // Where there is one device all groups are its, whenever they are made.
    config.on_making_context = [this](int device) {
      if (executor_ != nullptr && executor_->num_devices() > 1) GpuChannelGroups::OfThisProcess().SetDevice(device);
      if (device < 0) loop_.Post([this] { context_turns_.OnContextMade(); });
    };
    // Others may now have to give way there.
    config.on_device_used = [this] { loop_.Post([this] { context_turns_.Check(); }); };
    config.on_throttle_level = [this] { loop_.Post([this] { Report(0); }); };
    config.on_long_blocks = [this](uint64_t session_id, const std::string& kernel, std::chrono::nanoseconds left) {
      loop_.Post([this, session_id, kernel, left] { link_.SendLongBlocks(session_id, kernel, left); });
    };
    config.on_fault = [this](const std::string& reason) { loop_.Post([this, reason] { OnFault(reason); }); };
    return config;
  }

  void StartExecutor() {
    // As many GPU channels as there can be: programs that share one wait for one another.
    if (!options_.makes_few_gpu_channels) ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
    auto executor = Executor::Create(MakeConfig());
    if (!executor) {
      start_error_ = executor.error();
      LOG_ERROR("domain {}: {}", options_.config.domain_name, start_error_.message());
      return;
    }
    executor_ = std::move(*executor);
    LOG_INFO("domain {}: {}", options_.config.domain_name, executor_->driver_description());
  }

  // tallyd must have read why before it sees our end: it answers with a shutdown.
  int EndWithoutExecutor() {
    loop_.PostDelayed(kFaultLinger, [this] { End(); });
    loop_.Run();
    return 1;
  }

  DaemonLink::Events MakeEvents() {
    DaemonLink::Events events;
    events.on_connected = [this] { OnConnected(); };
    events.on_add_session = [this](const control::SessionIdentity& identity, UniqueFd socket) {
      OnAddSession(identity, std::move(socket));
    };
    events.on_query = [this](uint64_t request_id) { Report(request_id); };
    events.on_set_priority = [this](uint64_t request_id, uint64_t session_id, const control::ShareChange& change) {
      link_.SendPriorityReply(request_id, executor_->SetPriority(session_id, change));
    };
    events.on_query_kernels = [this](uint64_t request_id) {
      if (executor_ == nullptr) return;
      const auto kernels = executor_->Kernels();
      link_.SendKernels(request_id, kernels);
      link_.SendReportEnd(request_id, kernels.size());
    };
    events.on_query_window_shapes = [this](uint64_t request_id) {
      if (executor_ == nullptr) return;
      auto shapes = executor_->WindowShapes();
      std::ranges::sort(shapes, std::greater(), &control::WindowShapeFigures::num_uses);
      if (shapes.size() > control::kMaxWindowShapes) shapes.resize(control::kMaxWindowShapes);
      link_.SendWindowShapes(request_id, shapes);
      link_.SendReportEnd(request_id, shapes.size());
    };
    events.on_query_graphs = [this](uint64_t request_id) {
      if (executor_ == nullptr) return;
      auto graphs = executor_->Graphs();
      std::ranges::sort(graphs, std::greater(), &control::GraphFigures::num_launches);
      if (graphs.size() > control::kMaxGraphs) graphs.resize(control::kMaxGraphs);
      link_.SendGraphs(request_id, graphs);
      link_.SendReportEnd(request_id, graphs.size());
    };
    events.on_draw_graph = [this](uint64_t request_id, uint64_t session_id, uint32_t number, UniqueFd file) {
      if (executor_ == nullptr) return;
      const std::string text = executor_->DrawGraph(session_id, number);
      const uint64_t size = text.size() <= control::kMostPictureText ? text.size() : 0;
      // What cannot be written reads as no picture: the size comes last.
      if (::pwrite(file.get(), text.data(), size, sizeof(size)) == static_cast<ssize_t>(size)) {
        static_cast<void>(::pwrite(file.get(), &size, sizeof(size), 0));
      }
      link_.SendReportEnd(request_id, 0);
    };
    events.on_set_tuning = [this](const scheduler::Tuning& tuning) {
      if (executor_ != nullptr) executor_->Tune(tuning);
    };
    events.on_set_time_slice = [this](const auto& slices, bool is_left_to_slices) {
      context_turns_.OnWanted(slices, is_left_to_slices);
    };
    events.on_end_session = [this](uint64_t session_id, const std::string& reason) {
      // One that is gone already has ended as it was to.
      if (executor_ != nullptr) (void)executor_->Evict(session_id, reason);
    };
    events.on_trace = [this](uint64_t request_id, std::chrono::nanoseconds duration, std::optional<uint32_t> uid,
                             UniqueFd file) { OnTrace(request_id, duration, uid, std::move(file)); };
    events.on_end_trace = [this] { EndTrace(); };
    events.on_shutdown = [this] { End(); };
    return events;
  }

  void OnConnected() {
    control::LinkHello hello{};
    hello.link_version = control::kLinkVersion;
    hello.priority_class = static_cast<uint32_t>(options_.config.priority_class);
    hello.api_table_hash = kApiTableHash;
    hello.figures_hash = control::kSessionFiguresHash;
    hello.owner_uid = options_.owner_uid;
    hello.status_code = static_cast<uint32_t>(start_error_.code());
    hello.is_faulted = is_faulted_ ? 1 : 0;
    CopyText(options_.config.domain_name, hello.domain_name);
    CopyText(options_.config.policy, hello.policy_name);
    CopyText(start_error_.message(), hello.error);
    if (executor_ != nullptr) {
      hello.num_devices = static_cast<uint32_t>(executor_->num_devices());
      hello.is_software = executor_->is_software() ? 1 : 0;
      CopyText(executor_->driver_description(), hello.driver_name);
    }
    link_.SendHello(hello);
    if (executor_ != nullptr) link_.SendGpus(executor_->driver_version(), executor_->gpus());
    context_turns_.OnConnected();
    if (executor_ != nullptr) Report(0);
    if (is_retiring_) link_.SendLeaving();
  }

  void OnAddSession(const control::SessionIdentity& identity, UniqueFd socket) {
    if (executor_ == nullptr) return;
    SessionIdentity session;
    session.session_id = identity.session_id;
    session.pid = identity.pid;
    session.uid = identity.uid;
    session.gid = identity.gid;
    session.weight = identity.weight;
    session.level = identity.level;
    session.keeps_kernels = identity.keeps_kernels != 0;
    session.window = static_cast<control::WindowMode>(identity.window);
    session.turnaround = std::chrono::nanoseconds(identity.turnaround_ns);
    if (identity.slo_latency_ns != 0) {
      session.slo = scheduler::Slo{identity.slo_percentile, std::chrono::nanoseconds(identity.slo_latency_ns)};
    }
    session.tenant_name = identity.tenant_name;
    session.grant_id = identity.grant_id;
    session.device_memory_bytes = identity.device_memory_bytes;
    session.share_permille = identity.share_permille;
    session.gpus = identity.gpus;
    if (identity.owner_uid != control::kNobody) session.owner_uid = identity.owner_uid;
    session.only_starts = identity.only_starts != 0;
    session.graphs = static_cast<control::GraphMode>(identity.graphs);
    session.priority_class = static_cast<shm::PriorityClass>(identity.priority_class);
    if (++num_sessions_ == 1) LookAtDeparted(++num_departed_looks_);
    loop_.PostDelayed(kSettleTime, [this] { context_turns_.Check(); });
    const Status added = executor_->AddSession(std::move(socket), session);
    if (added.ok()) return;
    // Its socket is closed now, which is what the client sees.
    LOG_WARNING("session {}: {}", session.session_id, added.message());
    SessionEnd end;
    end.identity = session;
    end.last.identity = session;
    OnSessionEnd(end);
  }

  void OnSessionEnd(const SessionEnd& end) {
    if (end.evicted) LOG_WARNING("session {} was evicted: {}", end.identity.session_id, end.reason);
    LOG_INFO("session {} ended: {}", end.identity.session_id, end.reason);
    link_.SendReport(0, end.last, /*has_ended=*/true);
    if (executor_ != nullptr) link_.SendRefusedFunctions(executor_->RefusedFunctions());
    --num_sessions_;
    if (num_sessions_ == 0) WaitForIdle();
  }

  void Report(uint64_t request_id) {
    if (executor_ == nullptr) return;
    const auto sessions = executor_->Snapshot();
    for (const SessionSnapshot& session : sessions) link_.SendReport(request_id, session, /*has_ended=*/false);
    link_.SendRefusedFunctions(executor_->RefusedFunctions());
    context_turns_.Check();
    link_.SendReportEnd(request_id, sessions.size());
  }

  // The file stays as it is where nothing can be recorded.
  void OnTrace(uint64_t request_id, std::chrono::nanoseconds duration, std::optional<uint32_t> uid, UniqueFd file) {
    if (executor_ == nullptr || !executor_->StartTrace(uid).ok()) return link_.SendReportEnd(request_id, 0);
    trace_ = {request_id, std::move(file)};
    loop_.PostDelayed(std::chrono::ceil<std::chrono::milliseconds>(duration), [this, request_id] {
      if (trace_.request_id == request_id) EndTrace();
    });
  }

  void EndTrace() {
    const RunningTrace trace = std::exchange(trace_, {});
    if (!trace.file.valid()) return;  // it has ended
    const Status written = executor_->EndTrace(trace.file.get());
    if (!written.ok()) LOG_WARNING("a trace is lost: {}", written.message());
    link_.SendReportEnd(trace.request_id, 0);
  }

  void WaitForIdle() {
    const uint64_t wait = ++num_idle_waits_;
    loop_.PostDelayed(is_retiring_ ? kIdleOfLeaving : options_.idle, [this, wait] {
      if (num_sessions_ > 0 || wait != num_idle_waits_) return;
      if (!link_.is_connected()) return End();  // nobody who could send a session
      link_.SendIdle();
      WaitForIdle();  // tallyd may have had a session on its way
    });
  }

  // While there are sessions.
  void LookAtDeparted(uint64_t looks) {
    if (looks != num_departed_looks_ || num_sessions_ == 0) return;
    std::vector<DepartedWork::Draining> draining;
    size_t num_departed = 0;
    for (const SessionSnapshot& session : executor_->Snapshot()) {
      num_departed += session.has_departed ? 1 : 0;
      if (session.is_draining) draining.push_back({session.identity.session_id, BusyOf(session)});
    }
    const auto endless = departed_work_.Look(draining, TakenDevices(), SteadyClock().Now());
    const bool goes_on = departed_work_.longest() >= kRetireAfter;
    // A session that was on its way to one that retires has come by the next look.
    const bool may_leave = goes_on && is_retiring_ && options_.departed_work_limit.count() != 0;
    if (may_leave && num_departed == num_sessions_) Leave();
    if (endless) OnEndlessWork(*endless);
    if (goes_on) Retire();
    loop_.PostDelayed(draining.empty() ? kLookAtDeparted : kLookAtDraining, [this, looks] { LookAtDeparted(looks); });
  }

  // By device.
  std::vector<std::chrono::nanoseconds> BusyOf(const SessionSnapshot& session) const {
    const auto entries = session.figures.entries("busy_ns");
    std::vector<std::chrono::nanoseconds> busy;
    const auto num_devices = std::min(static_cast<size_t>(executor_->num_devices()), control::kMostGpus);
    for (size_t device = 0; device < num_devices; ++device) {
      busy.emplace_back(entries[control::GpuEntry(device, false)] + entries[control::GpuEntry(device, true)]);
    }
    return busy;
  }

  // By high-priority work of others, by device.
  std::vector<bool> TakenDevices() const {
    HighPriorityWatch* const watch = executor_->high_priority_watch();
    std::vector<bool> are_taken;
    for (int device = 0; watch != nullptr && device < executor_->num_devices(); ++device) {
      are_taken.push_back(watch->IsClosed(device) && !watch->IsOneOfThem(device));
    }
    return are_taken;
  }

  // This executor may have to end soon, with all its programs: those that have yet to come are better off elsewhere.
  void Retire() {
    if (std::exchange(is_retiring_, true)) return;
    LOG_INFO("domain {}: work of a program that is gone goes on: new ones get another executor",
             options_.config.domain_name);
    link_.SendLeaving();
  }

  // As natively, where a process that ends takes its work with it. Closing the driver would wait for that.
  [[noreturn]] void Leave() {
    LOG_INFO("domain {}: its programs are gone, and so is what they left on the GPU", options_.config.domain_name);
    Report(0);  // last figures
    link_.SendLeaving();
    ::_exit(0);
  }

  // Closing the driver would wait for that work, too.
  [[noreturn]] void OnEndlessWork(uint64_t session_id) {
    const std::string reason =
        fmt::format("the program of session {} is gone and its work has not ended in {} s", session_id,
                    std::chrono::duration_cast<std::chrono::seconds>(options_.departed_work_limit).count());
    LOG_ERROR("domain {}: this executor ends: {}", options_.config.domain_name, reason);
    Report(0);  // last figures
    link_.SendFaulted(reason);
    ::_exit(3);
  }

  void OnFault(const std::string& reason) {
    if (std::exchange(is_faulted_, true)) return;
    LOG_ERROR("domain {}: the context is lost: {}", options_.config.domain_name, reason);
    link_.SendFaulted(reason);
    loop_.PostDelayed(kFaultLinger, [this] { End(); });
  }

  EventLoop& loop_;
  ExecutorOptions options_;
  DaemonLink link_;
  Status start_error_;
  std::unique_ptr<Executor> executor_;
  ContextTurns context_turns_;  // stopped before executor_ is shut down
  DepartedWork departed_work_;
  uint64_t num_departed_looks_ = 0;  // only the last series counts
  size_t num_sessions_ = 0;
  uint64_t num_idle_waits_ = 0;  // only the last wait counts
  struct RunningTrace {
    uint64_t request_id = 0;
    UniqueFd file;  // not valid: there is none
  };
  RunningTrace trace_;
  bool is_faulted_ = false;
  bool is_retiring_ = false;  // said: no new sessions, please
};

}  // namespace

int RunDomainProcess(ExecutorOptions options) {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  // A terminal's signals are for the program; a dead client's socket is no reason to die.
  for (const int number : {SIGINT, SIGHUP, SIGPIPE}) ::signal(number, SIG_IGN);
  const UniqueFd signal_fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (options.exit_with_parent != 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != options.exit_with_parent) return 1;
  }
  auto loop = EventLoop::Create();
  if (!loop) {
    fmt::print(stderr, "tally-executor: {}\n", loop.error().message());
    return 1;
  }
  DomainProcess process(**loop, std::move(options));
  const Status watched = (*loop)->Watch(signal_fd.get(), [&] { process.End(); });
  if (!watched.ok()) return 1;
  return process.Run();
}

}  // namespace tally::server
