#include "server/daemon/command_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "base/command_line.h"
#include "base/log_prefixes.h"
#include "proto/control/socket_paths.h"
#include "proto/control/version.h"

namespace tally::server {
namespace {

constexpr const char* kDescription =
    "tallyd shares this machine's GPUs between unmodified CUDA programs.\n"
    "It gives programs started by tally-run a session, and starts one executor process per domain, which owns the "
    "GPU.\n"
    "Without a GPU it uses a CUDA driver in software.";

constexpr const char* kFooter =
    "\nExamples:\n"
    "  tallyd                          for yourself (or, as root, for the machine)\n"
    "  tallyd --config /etc/tally/tallyd.json\n"
    "  tallyd --driver sim --socket /tmp/demo/tally.sock --metrics-address 0\n"
    "\nThen: tally-run PROGRAM; tallyctl ps; curl http://127.0.0.1:9464/metrics\n"
    "\nEnvironment:\n"
    "  TALLY_POLICY        stands in for --policy\n"
    "  TALLY_LOG           error, warning, info (default) or debug\n"
    "  TALLY_REAL_LIBCUDA  NVIDIA's libcuda.so.1, for executors (default: where distributions put it)\n"
    "  XDG_RUNTIME_DIR, XDG_CACHE_HOME, CACHE_DIRECTORY, NOTIFY_SOCKET, LISTEN_FDS   as usual\n"
    "\nSignals:\n"
    "  SIGHUP           reads the file again: users, limits and policy change, the log says what waits for a restart\n"
    "  SIGTERM, SIGINT  end tallyd; programs that run keep their executors, and the next tallyd finds them again\n"
    "\nExit status:\n"
    "  0  ended by a signal\n"
    "  1  it cannot serve; one sentence says why\n"
    "  2  wrong options or configuration";

// What flags say, kept apart until the file has been read: flags win.
struct Flags {
  std::string config_path, socket, runtime_dir, driver, default_priority, metrics_address, executor_path, transforms,
      policy, starvation_bound;
  std::string cache_directory = "auto";  // not given; empty: none
  std::vector<uid_t> allow;
  double turnaround_us = 0;
  bool share_contexts = false;
  bool deschedules = false, does_not_deschedule = false;
  bool does_not_refresh = false;
  bool does_not_hold = false;
  bool allow_any = false, is_embedded = false;
  int64_t time_slice_us = -1, gates_rest_ms = -1;
  int idle_seconds = -1, max_sessions = -1, ready_fd = -1, embedded_parent = 0;
};

Status MergeFlags(const Flags& flags, DaemonConfig& config) {
  if (!flags.runtime_dir.empty()) config.socket = flags.runtime_dir + "/" + control::kClientSocketName;
  if (!flags.socket.empty()) config.socket = flags.socket;
  if (!flags.driver.empty()) {
    const auto driver = ParseDriverChoice(flags.driver);
    if (!driver) return driver.error().With("--driver");
    config.driver = *driver;
  }
  if (!flags.default_priority.empty()) {
    const auto priority = ParsePriorityClass(flags.default_priority);
    if (!priority) return priority.error().With("--default-priority");
    config.default_priority = *priority;
  }
  if (!flags.metrics_address.empty()) {
    config.metrics_address = flags.metrics_address;
    config.is_metrics_address_explicit = true;
  }
  if (flags.allow_any || !flags.allow.empty()) config.allowed_uids = UidSet{flags.allow_any, flags.allow};
  if (flags.idle_seconds >= 0) config.executor_idle = std::chrono::seconds(flags.idle_seconds);
  if (flags.max_sessions >= 0) config.max_sessions = static_cast<uint32_t>(flags.max_sessions);
  const char* policy_in_environment = std::getenv("TALLY_POLICY");
  const bool is_policy_flag = !flags.policy.empty();
  if (is_policy_flag || (policy_in_environment != nullptr && *policy_in_environment != '\0')) {
    const auto policy = ParsePolicy(is_policy_flag ? flags.policy : policy_in_environment);
    if (!policy) return policy.error().With(is_policy_flag ? "--policy" : "TALLY_POLICY");
    config.policy = *policy;
  }
  if (!flags.transforms.empty()) {
    const auto transforms = ParseTransforms(flags.transforms);
    if (!transforms) return transforms.error().With("--transforms");
    config.transforms = *transforms;
  }
  if (flags.turnaround_us > 0) {
    config.turnaround_threshold = std::chrono::nanoseconds(static_cast<int64_t>(flags.turnaround_us * 1e3));
  }
  if (flags.gates_rest_ms >= 0) config.gates_rest_after = std::chrono::milliseconds(flags.gates_rest_ms);
  if (!flags.starvation_bound.empty()) {
    const auto bound = ParseStarvationBound(flags.starvation_bound);
    if (!bound) return bound.error().With("--starvation-bound");
    config.starvation_bound = *bound;
  }
  if (flags.share_contexts) config.share_contexts = true;
  // Not one optional<bool>: without the flag CLI11 makes that false.
  if (flags.deschedules) config.suspend_best_effort = true;
  if (flags.does_not_deschedule) config.suspend_best_effort = false;
  if (flags.does_not_refresh) config.refresh_contexts = false;
  if (flags.does_not_hold) config.hold_gpu = false;
  if (flags.time_slice_us >= 0) config.best_effort_time_slice = std::chrono::microseconds(flags.time_slice_us);
  if (flags.cache_directory != "auto") config.cache_directory = flags.cache_directory;
  config.ready_fd = flags.ready_fd;
  config.embedded_parent = flags.embedded_parent;
  if (flags.is_embedded) config.embedded_parent = ::getppid();
  if (!flags.executor_path.empty()) config.executor_path = flags.executor_path;
  return OkStatus();
}

Result<DaemonConfig> ReadConfig(const Flags& flags) {
  DaemonConfig config;
  Status status = flags.config_path.empty() ? OkStatus() : MergeConfigFile(flags.config_path, config);
  if (status.ok()) status = MergeFlags(flags, config);
  if (status.ok()) status = Validate(::geteuid(), config);
  if (!status.ok()) return std::unexpected(status);
  return config;
}

}  // namespace

std::variant<DaemonStart, int> ParseDaemonCommandLine(int argc, char** argv) {
  Flags flags;
  CLI::App app(kDescription, "tallyd");
  app.footer(kFooter);
  app.set_version_flag("--version", control::VersionLine("tallyd"));
  app.add_option("--config", flags.config_path, "JSON file with the settings below (docs/tallyd.md lists the keys)")
      ->type_name("FILE");
  app.add_option("--socket", flags.socket,
                 "where clients connect; its directory also holds tallyd's own files (default: /run/tally/tally.sock "
                 "for root, else "
                 "$XDG_RUNTIME_DIR/tally/tally.sock or /tmp/tally-UID/tally.sock)")
      ->type_name("SOCKET");
  app.add_option("--runtime-dir", flags.runtime_dir, "the same as --socket RUNTIME_DIR/tally.sock")
      ->type_name("DIRECTORY")
      ->excludes(app.get_option("--socket"));
  app.add_option("--driver", flags.driver, "auto (a GPU if there is one), cuda, or sim (the software driver)")
      ->type_name("auto|cuda|sim");
  app.add_option("--default-priority", flags.default_priority,
                 "class of programs that ask for none: high or best-effort (default)")
      ->type_name("high|best-effort");
  app.add_option("--allow-uid", flags.allow, "let this user have sessions too (may be repeated)")->type_name("UID");
  app.add_flag("--allow-any-uid", flags.allow_any, "let every user have sessions (default when root runs tallyd)");
  app.add_option("--max-sessions", flags.max_sessions, "sessions at a time (default 1024)")
      ->type_name("COUNT")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--executor-idle-seconds", flags.idle_seconds,
                 "an executor without sessions ends after this time (default 60)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--policy", flags.policy,
                 "which best-effort launch goes next, and when: auto (default: the GPU's time slices alone where the "
                 "driver accepts them, else look-ahead), look-ahead, none, kernel-granular, tally-paper, fair, tally "
                 "(docs/scheduling.md)")
      ->type_name("auto|look-ahead|none|kernel-granular|tally-paper|fair|tally");
  app.add_option("--transforms", flags.transforms,
                 "how kernels of best-effort programs may be rewritten so that they can give the GPU back: none "
                 "(default), slices, workers, gate, all")
      ->type_name("none|slices|workers|gate|all");
  app.add_option("--turnaround-us", flags.turnaround_us,
                 "how soon a best-effort kernel should give the GPU back, in microseconds (default 31.6)")
      ->type_name("MICROSECONDS")
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--gates-rest-after-ms", flags.gates_rest_ms,
                 "kernels run without gates once no high-priority work has come for so long, in milliseconds "
                 "(default 1000); 0: gates never rest")
      ->type_name("MILLISECONDS")
      ->check(CLI::Range(int64_t{0}, static_cast<int64_t>(kLongestGatesRestMs)));
  app.add_flag("--share-contexts", flags.share_contexts,
               "high-priority and best-effort programs of one user in one GPU context: no switch between them, but a "
               "fault of one ends all (docs/scheduling.md)");
  CLI::Option* deschedules =
      app.add_flag("--suspend-best-effort", flags.deschedules,
                   "deschedule best-effort contexts while high-priority work keeps coming, so that only the first of "
                   "its kernels pays for a switch; goes with --policy look-ahead or another that minds classes "
                   "(docs/scheduling.md)");
  app.add_flag("--no-suspend-best-effort", flags.does_not_deschedule, "leave them to the time slices; the default")
      ->excludes(deschedules);
  app.add_flag("--no-refresh-contexts", flags.does_not_refresh,
               "do not preempt high-priority contexts in pauses, once a second at most, which has short kernels start "
               "sooner (docs/scheduling.md)");
  app.add_flag("--no-hold-gpu", flags.does_not_hold,
               "do not hold the GPU in short gaps of high-priority work where its requests are shorter with it");
  app.add_option("--time-slice-us", flags.time_slice_us,
                 "how long the GPU runs best-effort work at a time while there is a high-priority program, in "
                 "microseconds (default 1); 0: time slices are left as the driver sets them")
      ->type_name("MICROSECONDS")
      ->check(CLI::Range(int64_t{0}, static_cast<int64_t>(kLongestTimeSliceUs)));
  app.add_option(
         "--starvation-bound", flags.starvation_bound,
         "best-effort work that has waited so long behind high-priority work gets one launch through, e.g. "
         "100ms; off: it waits (default: 10 s where the policy holds work back; docs/scheduling.md says what it costs)")
      ->type_name("TIME");
  app.add_option("--cache-directory", flags.cache_directory,
                 "where compiled kernels and what was measured are kept (default: /var/cache/tally for root, else "
                 "$XDG_CACHE_HOME/tally or ~/.cache/tally; empty: nothing is kept)")
      ->type_name("DIRECTORY");
  app.add_option("--metrics-address", flags.metrics_address,
                 "HOST:PORT of the Prometheus endpoint (default 127.0.0.1:9464), 0 for none")
      ->type_name("ADDRESS");
  app.add_option("--ready-fd", flags.ready_fd, "write one line 'ready ...' to this descriptor once clients can connect")
      ->type_name("NUMBER")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--executor", flags.executor_path, "the tally-executor to start (default: the one beside tallyd)")
      ->type_name("FILE");
  app.add_flag("--embedded", flags.is_embedded,
               "private: only for you, no metrics; ends with the process that started it, and takes its executors and "
               "the directory along");
  // For tally-run --embedded: the same, sure of which process.
  app.add_option("--embedded-parent", flags.embedded_parent)->group("");
  if (const auto exit_status = ParseCommandLine(app, argc, argv)) return *exit_status;

  auto config = ReadConfig(flags);
  if (!config) {
    fmt::print(stderr, "{}tallyd: {}\n", LogPrefix(LogLevel::kError), config.error().message());
    return 2;
  }
  DaemonStart start{std::move(*config), nullptr};
  if (!flags.config_path.empty()) start.read_again = [flags] { return ReadConfig(flags); };
  return start;
}

}  // namespace tally::server
