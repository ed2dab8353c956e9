#include "server/daemon/daemon.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "base/installed_files.h"
#include "base/log.h"
#include "base/log_prefixes.h"
#include "base/private_path.h"
#include "proto/control/socket_paths.h"
#include "proto/control/version.h"
#include "server/daemon/client_listener.h"
#include "server/daemon/executor_pool.h"
#include "server/daemon/executor_spawner.h"
#include "server/daemon/grant_desk.h"
#include "server/daemon/loop_desk.h"
#include "server/daemon/metrics/exporter.h"
#include "server/daemon/reload.h"
#include "server/daemon/rpc/rpc_server.h"
#include "server/daemon/rpc/view_server.h"
#include "server/daemon/runtime_dir.h"
#include "server/daemon/starter.h"
#include "server/daemon/switch_test.h"

namespace tally::server {
namespace {

// How long the end of tallyd may take: idle executors close their driver in this time.
constexpr std::chrono::seconds kShutdownLimit{5};

int Fail(const Status& status) {
  fmt::print(stderr, "{}tallyd: {}\n", LogPrefix(LogLevel::kError), status.message());
  return 1;
}

// A private daemon must not outlive its tally-run, however that dies.
bool FollowParent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  return ::getppid() == parent;
}

UniqueFd BlockAndWatchSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&signals, number);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

// A session needs a few descriptors for a moment; the usual soft limit of 1024 is for programs that use select().
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// What another user could replace is no cache: its code would run in executors. Whoever asked for it is told.
void DoWithoutForeignCache(DaemonConfig& config) {
  if (config.cache_directory.empty()) return;
  const Status checked = CheckPrivatePath(config.cache_directory);
  if (checked.ok()) return;
  LOG_WARNING("going on without the cache directory '{}': {} (--cache-directory chooses another)",
              config.cache_directory, checked.message());
  config.cache_directory.clear();
}

void LogForcedSwitch(const control::SwitchFigures& figures) {
  if (figures.acts) {
    LOG_INFO(
        "time slices act: the GPU is taken from best-effort work in {:.0f} us (99th percentile; by itself in {:.0f})",
        figures.p99_us, figures.own_p99_us);
  } else {
    LOG_WARNING("time slices do not act: the GPU is taken from best-effort work in {:.0f} us (99th percentile)",
                figures.own_p99_us);
  }
}

// The file is read again: what can change does, the log says what cannot. A bad file leaves everything as it is.
void ReadAgain(const DaemonStart& start, DaemonConfig& running, ClientListener& listener, ExecutorPool& pool,
               GrantDesk& grants) {
  if (!start.read_again) {
    LOG_INFO("SIGHUP: there is nothing to read again without --config");
    return;
  }
  NotifyServiceManager("RELOADING=1");
  auto wanted = start.read_again();
  if (wanted) {
    DoWithoutForeignCache(*wanted);
    Reload reload = PlanReload(running, *wanted);
    // A part of a good configuration beside a part of another may not go together.
    if (const Status valid = Validate(::geteuid(), reload.config); valid.ok()) {
      listener.Reconfigure(reload.config);
      pool.Reconfigure(reload.config);
      if (reload.config.grants != running.grants) grants.Reconfigure(reload.config.grants);
      if (reload.config.turnaround_threshold != running.turnaround_threshold) {
        pool.SetTurnaroundThreshold(reload.config.turnaround_threshold);
      }
      running = std::move(reload.config);
      LOG_INFO("{}", reload.Sentence());
    } else {
      wanted = std::unexpected(valid.With("only with a restart"));
    }
  }
  if (!wanted) LOG_ERROR("nothing is changed: {}", wanted.error().message());
  NotifyServiceManager("READY=1");
}

}  // namespace

int RunDaemon(const DaemonStart& start) {
  DaemonConfig config = start.config;
  // The process: private files, signals on the loop, never alone without its parent.
  ::umask(0077);
  const UniqueFd signals = BlockAndWatchSignals();
  if (config.embedded_parent != 0 && !FollowParent(config.embedded_parent)) return 1;
  RaiseDescriptorLimit();

  const std::string socket_name = config.socket.substr(config.socket.rfind('/') + 1);
  const std::string client_socket = control::ClientSocketIn(config.runtime_dir, socket_name);
  auto activated = TakeActivatedSocket(client_socket, config.socket);
  if (!activated) return Fail(activated.error());

  // The runtime directory: ours alone from here on.
  auto runtime_dir = RuntimeDir::Open(config.runtime_dir, OthersMayConnect(config));
  if (!runtime_dir) return Fail(runtime_dir.error());
  DoWithoutForeignCache(config);

  // The loop and what lives on it: executors, then the clients that need them.
  auto loop = EventLoop::Create();
  if (!loop) return Fail(loop.error());
  const ResolvedDriver driver = ResolveDriver(config.driver);
  const std::string executor_socket = (*runtime_dir)->PathOf(control::kExecutorSocketName);
  auto spawner = ExecutorSpawner::Create(config, driver.driver, executor_socket);
  if (!spawner) return Fail(spawner.error());
  ExecutorPool pool(**loop, **runtime_dir, *spawner, config);
  GrantBook book((*runtime_dir)->PathOf("grants.json"));
  pool.SetGrantCheck([&](uint64_t grant_id) { return book.Find(grant_id) != nullptr; });
  ClientListener listener(**loop, config, pool, **runtime_dir, book);
  GrantDesk grants(**runtime_dir, book, listener, pool);
  if (const Status listening = pool.Listen(executor_socket); !listening.ok()) return Fail(listening);

  // The operator's side, on threads of its own that ask the loop.
  LoopDesk desk(**loop, pool, listener, grants,
                {config.socket, DriverChoiceName(driver.driver), {}, {}, config.cache_directory});
  auto rpc = RpcServer::Start((*runtime_dir)->PathOf(control::kControlSocketName), desk);
  if (!rpc) return Fail(rpc.error());
  std::unique_ptr<ViewServer> view;
  if (OthersMayConnect(config) && config.shows_own_sessions) {
    auto started = ViewServer::Start((*runtime_dir)->PathOf(control::kViewSocketName), desk, config.shows_totals);
    if (!started) return Fail(started.error());
    view = std::move(*started);
  }
  std::unique_ptr<MetricsExporter> metrics;
  if (!config.metrics_address.empty() && config.embedded_parent == 0) {
    auto started = MetricsExporter::Start(config.metrics_address, desk);
    if (!started && config.is_metrics_address_explicit) return Fail(started.error());
    if (!started) {
      LOG_WARNING("{}; going on without metrics (--metrics-address chooses another)", started.error().message());
    } else {
      metrics = std::move(*started);
    }
  }

  // Clients last: from the first one on, everything above is there.
  const bool has_link = !*activated || (*activated)->path == client_socket;
  auto made_for_us = *activated ? std::optional(std::move((*activated)->fd)) : std::nullopt;
  if (const Status listening = listener.Listen(client_socket, std::move(made_for_us)); !listening.ok())
    return Fail(listening);
  if (has_link) (*runtime_dir)->LinkClientSocket(socket_name);
  if (const Status started = grants.Start(config.grants); !started.ok()) return Fail(started);
  LOG_INFO("{} serves {}; driver {} ({})", control::VersionLine("tallyd"), config.socket,
           DriverChoiceName(driver.driver), driver.reason);
  if (driver.driver == DriverChoice::kSim && config.driver == DriverChoice::kAuto && config.embedded_parent == 0) {
    LOG_WARNING("{}: programs run on the software driver, which is for trying things out, not for speed",
                driver.reason);
  }
  WriteReadyLine(config.ready_fd, fmt::format("ready driver={} ({})", DriverChoiceName(driver.driver), driver.reason));
  NotifyServiceManager("READY=1\nSTATUS=serving " + config.socket);

  // What the GPU's own switch costs here: asked once, while nobody uses the GPU. Beside programs it would measure
  // theirs, and its contexts of 1 us would keep those of other best-effort programs from getting anywhere.
  std::unique_ptr<SwitchTest> switch_test;
  if (driver.driver == DriverChoice::kCuda && config.embedded_parent == 0 &&
      config.best_effort_time_slice.count() != 0 && pool.executors().empty() && !pool.MayStillBeAdopted()) {
    pool.SetBeforeStart([&] {
      if (switch_test == nullptr || switch_test->has_ended()) return;
      LOG_INFO("the first program is here: how soon the GPU can be taken back is not measured (tally-switch-test)");
      switch_test.reset();
    });
    switch_test = SwitchTest::Start(**loop, ProgramDirectory() + "/tally-switch-test", [&](const auto& figures) {
      desk.SetForcedSwitch(figures);
      if (!figures) return;
      LogForcedSwitch(*figures);
      pool.SetTimeSlicesAct(figures->acts);
    });
  }

  // The end: no new client, executors without sessions end too; those with sessions wait for the next tallyd.
  const bool is_embedded = config.embedded_parent != 0;
  bool is_ending = false;
  const Status watched = (*loop)->Watch(signals.get(), [&] {
    signalfd_siginfo signal{};
    if (::read(signals.get(), &signal, sizeof(signal)) != sizeof(signal) || is_ending) return;
    // Not the end of a service: a closed terminal is no reason.
    if (signal.ssi_signo == SIGHUP && !is_embedded) return ReadAgain(start, config, listener, pool, grants);
    is_ending = true;
    LOG_INFO("ending on signal {}", signal.ssi_signo);
    NotifyServiceManager("STOPPING=1");
    listener.StopListening();
    pool.Shutdown(is_embedded, kShutdownLimit, [&] { (*loop)->Quit(); });
  });
  if (!watched.ok()) return Fail(watched);
  (*loop)->Run();

  // Those who still ask are answered "ending"; then nobody asks any more.
  rpc->reset();
  view.reset();
  metrics.reset();
  (*runtime_dir)->RemoveFiles(is_embedded);
  return 0;
}

}  // namespace tally::server
