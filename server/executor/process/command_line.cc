#include "server/executor/process/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>

#include "base/command_line.h"
#include "proto/control/version.h"

namespace tally::server {

namespace {

// A process of a rank that starts again finds the executor still there.
constexpr std::chrono::seconds kOwnDomainIdle{1};
// For copies that a program has left behind. Kernels of a rank whose siblings are gone as well never end.
constexpr std::chrono::seconds kOwnDomainDepartedWork{2};

}  // namespace

std::variant<ExecutorOptions, int> ParseExecutorCommandLine(int argc, char** argv) {
  ExecutorOptions options;
  // Of one rank or one process (shm::OwnDomain): it ends as soon as that has, as the program's context would.
  bool is_own_domain = false;
  int64_t idle_seconds = options.idle.count();
  int64_t departed_work_seconds = options.departed_work_limit.count();
  int64_t starvation_bound_ns = 0;
  int64_t turnaround_ns = options.config.turnaround_threshold.count();
  int64_t gates_rest_ms = options.config.gates_rest_after.count();
  CLI::App app(
      "tally-executor owns the GPU for one domain and serves the programs in it.\n"
      "tallyd starts it; nobody else needs to. It outlives tallyd: it connects again to the next one.",
      "tally-executor");
  app.set_version_flag("--version", control::VersionLine("tally-executor"));
  app.add_option("--domain", options.config.domain_name, "name of the domain")->type_name("NAME")->required();
  app.add_option("--owner-uid", options.owner_uid, "user whose programs the domain is for")
      ->type_name("UID")
      ->required();
  app.add_option("--priority-class", options.config.priority_class, "high or best-effort")
      ->type_name("high|best-effort")
      ->required()
      ->transform(CLI::CheckedTransformer(std::map<std::string, shm::PriorityClass>{
          {"high", shm::PriorityClass::kHighPriority}, {"best-effort", shm::PriorityClass::kBestEffort}}));
  app.add_option("--driver", options.config.driver.choice, "auto, cuda or sim")
      ->type_name("auto|cuda|sim")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, control::DriverChoice>{{"auto", control::DriverChoice::kAuto},
                                                                               {"cuda", control::DriverChoice::kCuda},
                                                                               {"sim", control::DriverChoice::kSim}}));
  app.add_option("--control-socket", options.control_socket, "tallyd's socket for executors")
      ->type_name("SOCKET")
      ->required();
  app.add_option("--idle-seconds", idle_seconds, "end after this time without programs (default 60)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--departed-work-seconds", departed_work_seconds,
                 "end when work of a program that is gone has not ended in this time (default 10; 0: never)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--max-sessions", options.config.max_sessions, "programs at a time")->type_name("COUNT");
  app.add_option("--session-device-memory-bytes", options.config.limits.device_memory_bytes,
                 "device memory one program may hold (0: no limit of ours)")
      ->type_name("BYTES");
  app.add_option("--session-pinned-memory-bytes", options.config.limits.pinned_bytes,
                 "page-locked memory one program may hold (0: half of the machine's)")
      ->type_name("BYTES");
  app.add_option("--transforms", options.config.transforms, "all, slices, workers, gate or none")
      ->type_name("none|slices|workers|gate|all")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, control::Transforms>{{"all", control::Transforms::kAll},
                                                     {"slices", control::Transforms::kSlices},
                                                     {"workers", control::Transforms::kPersistentBlocks},
                                                     {"gate", control::Transforms::kGate},
                                                     {"none", control::Transforms::kNone}}));
  app.add_option("--turnaround-ns", turnaround_ns, "how soon a best-effort kernel should give the GPU back")
      ->type_name("NANOSECONDS");
  app.add_option("--gates-rest-after-ms", gates_rest_ms,
                 "kernels run without gates once no high-priority work has come for so long (0: never)")
      ->type_name("MILLISECONDS");
  app.add_option("--cache-directory", options.config.cache_directory,
                 "where compiled kernels and what was measured are kept (default: nowhere)")
      ->type_name("DIRECTORY");
  app.add_option("--policy", options.config.policy, "how best-effort launches are held back and shared")
      ->type_name("POLICY");
  app.add_option("--starvation-bound-ns", starvation_bound_ns,
                 "after what time behind high-priority work one best-effort launch goes all the same (0: never)")
      ->type_name("NANOSECONDS");
  app.add_flag("--own-domain", is_own_domain,
               "the domain is one rank's or one process's: end as soon as that has ended");
  app.add_flag("--mixed-classes", options.config.are_classes_mixed,
               "programs of both classes are to come: on the GPU, streams of high-priority ones go first");
  app.add_flag("--few-gpu-channels", options.makes_few_gpu_channels,
               "as many GPU channels in a context as the driver makes by itself, instead of as many as there can be");
  app.add_flag("--suspend", options.deschedules,
               "deschedule best-effort contexts while high-priority work keeps coming");
  app.add_flag("--refresh", options.refreshes, "preempt high-priority contexts in a pause, once a second at most");
  app.add_flag("--hold-gpu", options.config.may_hold,
               "hold the GPU in gaps of high-priority work, where its requests are shorter with it");
  app.add_option("--exit-with-parent", options.exit_with_parent, "end when this parent process ends")->group("");
  if (const auto exit_status = ParseCommandLine(app, argc, argv)) return *exit_status;
  options.config.may_hold = options.config.may_hold && !options.config.are_classes_mixed &&
                            options.config.priority_class == shm::PriorityClass::kHighPriority;
  options.config.turnaround_threshold = std::chrono::nanoseconds(turnaround_ns);
  options.config.gates_rest_after = std::chrono::milliseconds(gates_rest_ms);
  options.config.starvation_bound = std::chrono::nanoseconds(starvation_bound_ns);
  options.idle = std::chrono::seconds(idle_seconds);
  options.departed_work_limit = std::chrono::seconds(departed_work_seconds);
  if (is_own_domain) {
    options.idle = std::min(options.idle, kOwnDomainIdle);
    options.departed_work_limit = kOwnDomainDepartedWork;
  }
  return options;
}

}  // namespace tally::server
