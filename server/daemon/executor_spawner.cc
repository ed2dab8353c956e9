#include "server/daemon/executor_spawner.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstring>
#include <vector>

#include "base/installed_files.h"
#include "server/daemon/policy_rules.h"

namespace tally::server {

Result<ExecutorSpawner> ExecutorSpawner::Create(const DaemonConfig& config, DriverChoice driver,
                                                std::string executor_socket) {
  std::string program = config.executor_path;
  if (program.empty()) program = ProgramDirectory() + "/tally-executor";
  if (::access(program.c_str(), X_OK) != 0) {
    return Error(StatusCode::kNotFound,
                 fmt::format("no executor program '{}' ({}): install it beside tallyd or name it with --executor",
                             program, std::strerror(errno)));
  }
  return ExecutorSpawner(config, driver, std::move(executor_socket), std::move(program));
}

Result<pid_t> ExecutorSpawner::Spawn(const Domain& domain, bool is_beside_service) const {
  std::vector<std::string> words = {"tally-executor",
                                    "--domain",
                                    domain.WireName(),
                                    "--owner-uid",
                                    std::to_string(domain.owner_uid),
                                    "--priority-class",
                                    PriorityClassName(domain.priority_class),
                                    "--driver",
                                    DriverChoiceName(driver_),
                                    "--control-socket",
                                    executor_socket_,
                                    "--idle-seconds",
                                    std::to_string(config_.executor_idle.count()),
                                    "--departed-work-seconds",
                                    std::to_string(config_.departed_work_limit.count()),
                                    "--max-sessions",
                                    std::to_string(config_.max_sessions),
                                    "--session-device-memory-bytes",
                                    std::to_string(config_.session_device_memory_bytes),
                                    "--session-pinned-memory-bytes",
                                    std::to_string(config_.session_pinned_memory_bytes),
                                    "--policy",
                                    config_.policy,
                                    "--transforms",
                                    TransformsName(config_.transforms),
                                    "--turnaround-ns",
                                    std::to_string(config_.turnaround_threshold.count()),
                                    "--gates-rest-after-ms",
                                    std::to_string(config_.gates_rest_after.count())};
  if (!config_.cache_directory.empty()) {
    words.push_back("--cache-directory");
    words.push_back(config_.cache_directory);
  }
  if (const auto bound = StarvationBoundOf(config_); bound.count() != 0) {
    words.push_back("--starvation-bound-ns");
    words.push_back(std::to_string(bound.count()));
  }
  if (domain.is_own) words.push_back("--own-domain");
  if (domain.are_classes_mixed) words.push_back("--mixed-classes");
  if (config_.suspend_best_effort) words.push_back("--suspend");
  // The service waits for each that is made. Gates need many: what they stop keeps its GPU channel.
  const bool is_best_effort = domain.priority_class == shm::PriorityClass::kBestEffort;
  if (is_beside_service && is_best_effort && config_.transforms == control::Transforms::kNone) {
    words.push_back("--few-gpu-channels");
  }
  if (config_.refresh_contexts) words.push_back("--refresh");
  if (config_.hold_gpu) words.push_back("--hold-gpu");
  if (config_.embedded_parent != 0) {
    words.push_back("--exit-with-parent");
    words.push_back(std::to_string(::getpid()));
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&files, 3);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, program_.c_str(), &files, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  if (error != 0) return std::unexpected(StatusFromErrno(error, fmt::format("start '{}'", program_)));
  return pid;
}

ResolvedDriver ResolveDriver(DriverChoice wanted, const std::string& dev_directory) {
  if (wanted != DriverChoice::kAuto) return {wanted, "as asked"};
  DIR* directory = ::opendir(dev_directory.c_str());
  std::string found;
  while (directory != nullptr && found.empty()) {
    const dirent* entry = ::readdir(directory);
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    // nvidia0, nvidia1, ...; dxg is the GPU of Windows' Linux subsystem.
    const bool is_gpu = (name.size() > 6 && name.starts_with("nvidia") && std::isdigit(name[6]) != 0) || name == "dxg";
    if (is_gpu) found = dev_directory + "/" + name;
  }
  if (directory != nullptr) ::closedir(directory);
  if (!found.empty()) return {DriverChoice::kCuda, "found " + found};
  return {DriverChoice::kSim, "no NVIDIA GPU in " + dev_directory};
}

}  // namespace tally::server
