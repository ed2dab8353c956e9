#include "server/executor_process/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "server/daemon/version.h"

namespace tally::server {

std::variant<ExecutorOptions, int> ParseExecutorCommandLine(int argc, char** argv) {
  ExecutorOptions options;
  int64_t idle_seconds = options.idle.count();
  int64_t starvation_bound_ns = 0;
  int64_t turnaround_ns = options.config.turnaround_threshold.count();
  int64_t gates_rest_ms = options.config.gates_rest_after.count();
  CLI::App app(
      "tally-executor owns the GPU for one domain and serves the programs in it.\n"
      "tallyd starts it; nobody else needs to. It outlives tallyd: it connects again to the next one.",
      "tally-executor");
  app.set_version_flag("--version", VersionLine("tally-executor"));
  app.add_option("--domain", options.config.domain_name, "name of the domain")->required();
  app.add_option("--owner-uid", options.owner_uid, "user whose programs the domain is for")->required();
  app.add_option("--priority-class", options.config.priority_class, "high or best-effort")
      ->required()
      ->transform(CLI::CheckedTransformer(std::map<std::string, shm::PriorityClass>{
          {"high", shm::PriorityClass::kHighPriority}, {"best-effort", shm::PriorityClass::kBestEffort}}));
  app.add_option("--driver", options.config.driver, "auto, cuda or sim")
      ->transform(CLI::CheckedTransformer(std::map<std::string, DriverChoice>{
          {"auto", DriverChoice::kAuto}, {"cuda", DriverChoice::kCuda}, {"sim", DriverChoice::kSim}}));
  app.add_option("--control-socket", options.control_socket, "tallyd's socket for executors")->required();
  app.add_option("--idle-seconds", idle_seconds, "end after this time without programs (default 60)")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--max-sessions", options.config.max_sessions, "programs at a time");
  app.add_option("--session-device-memory-bytes", options.config.limits.device_memory_bytes,
                 "device memory one program may hold (0: no limit of ours)");
  app.add_option("--session-pinned-memory-bytes", options.config.limits.pinned_bytes,
                 "page-locked memory one program may hold (0: half of the machine's)");
  app.add_option("--transforms", options.config.transforms, "all, slices, workers, gate or none")
      ->transform(CLI::CheckedTransformer(std::map<std::string, Transforms>{{"all", Transforms::kAll},
                                                                            {"slices", Transforms::kSlices},
                                                                            {"workers", Transforms::kWorkers},
                                                                            {"gate", Transforms::kGate},
                                                                            {"none", Transforms::kNone}}));
  app.add_option("--turnaround-ns", turnaround_ns, "how soon a best-effort kernel should give the GPU back");
  app.add_option("--gates-rest-after-ms", gates_rest_ms,
                 "kernels run without gates once no high-priority work has come for so long (0: never)");
  app.add_option("--cache-directory", options.config.cache_directory,
                 "where compiled kernels and what was measured are kept (default: nowhere)");
  app.add_option("--policy", options.config.policy, "how best-effort launches are held back and shared");
  app.add_option("--starvation-bound-ns", starvation_bound_ns,
                 "after what time behind high-priority work one best-effort launch goes all the same (0: never)");
  app.add_flag("--mixed-classes", options.config.are_classes_mixed,
               "programs of both classes are to come: on the GPU, streams of high-priority ones go first");
  app.add_flag("--suspend", options.suspends, "suspend best-effort contexts while high-priority work keeps coming");
  app.add_flag("--refresh", options.refreshes, "preempt high-priority contexts in a pause, once a second at most");
  app.add_option("--exit-with-parent", options.exit_with_parent, "end when this parent process ends")->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    fmt::print(stderr, "tally-executor: {}. 'tally-executor --help' lists the options.\n", error.what());
    return 2;
  }
  options.config.turnaround_threshold = std::chrono::nanoseconds(turnaround_ns);
  options.config.gates_rest_after = std::chrono::milliseconds(gates_rest_ms);
  options.config.starvation_bound = std::chrono::nanoseconds(starvation_bound_ns);
  options.idle = std::chrono::seconds(idle_seconds);
  return options;
}

}  // namespace tally::server
