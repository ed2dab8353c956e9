#include "client-shim/launcher/embedded.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/installed_files.h"
#include "base/unique_fd.h"
#include "client-shim/launcher/environment.h"
#include "client-shim/launcher/stale_directories.h"
#include "proto/control/socket_paths.h"

namespace tally::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kReadyLimit{30'000};
// tallyd gives its executors 5 s.
constexpr milliseconds kStopLimit{8'000};
constexpr int kReadyFd = 3;

Result<std::string> CreatePrivateDirectory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const bool has_runtime = runtime != nullptr && runtime[0] == '/' && std::strlen(runtime) < 70;
  const std::string parent = has_runtime ? runtime : "/tmp";
  RemoveStaleDirectories(parent, kReadyLimit);
  std::string path = parent + "/" + kPrivateDirectoryPrefix + "XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    return std::unexpected(StatusFromErrno(errno, fmt::format("create directory '{}'", path)));
  }
  return path;
}

Result<pid_t> SpawnDaemon(const std::string& directory, const std::string& driver, int ready_fd) {
  const std::string program = ProgramDirectory() + "/tallyd";
  std::vector<std::string> words = {"tallyd",
                                    "--embedded-parent",
                                    std::to_string(::getpid()),
                                    "--socket",
                                    directory + "/" + control::kClientSocketName,
                                    "--driver",
                                    driver,
                                    "--ready-fd",
                                    std::to_string(kReadyFd),
                                    "--metrics-address",
                                    "0"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&files, ready_fd, kReadyFd);
  ::posix_spawn_file_actions_addclosefrom_np(&files, kReadyFd + 1);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);  // stdout is the program's
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, program.c_str(), &files, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  if (error == ENOENT) {
    return Error(StatusCode::kNotFound,
                 fmt::format("--embedded needs the daemon, and '{}' is not there: install it, or "
                             "leave --embedded out and use a tallyd that runs already",
                             program));
  }
  if (error != 0) return std::unexpected(StatusFromErrno(error, fmt::format("start '{}'", program)));
  return pid;
}

// One line, or what was read when it ended or took too long.
std::string ReadLine(int fd, milliseconds limit) {
  std::string text;
  const auto deadline = steady_clock::now() + limit;
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    pollfd ready{fd, POLLIN, 0};
    const int count = ::poll(&ready, 1, std::max<int>(0, static_cast<int>(left.count())));
    if (count < 0 && errno == EINTR) continue;
    char letters[256];
    const ssize_t size = count > 0 ? ::read(fd, letters, sizeof(letters)) : 0;
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    text.append(letters, static_cast<size_t>(size));
    if (const size_t end = text.find('\n'); end != std::string::npos) return text.substr(0, end);
  }
}

}  // namespace

Result<EmbeddedDaemon> EmbeddedDaemon::Start(const std::string& driver) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::unexpected(StatusFromErrno(errno, "pipe"));
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  auto directory = CreatePrivateDirectory();
  if (!directory) return std::unexpected(directory.error());
  const auto pid = SpawnDaemon(*directory, driver, write_end.get());
  if (!pid) {
    RemovePrivateDirectory(*directory);
    return std::unexpected(pid.error());
  }
  write_end.Reset();
  EmbeddedDaemon daemon(*directory, *pid);
  const std::string line = ReadLine(read_end.get(), kReadyLimit);
  if (!line.starts_with("ready ")) return Error(StatusCode::kUnavailable, "the private tallyd could not start");
  daemon.readiness_ = line.substr(std::strlen("ready "));
  return daemon;
}

EmbeddedDaemon::EmbeddedDaemon(EmbeddedDaemon&& other) noexcept
    : directory_(std::move(other.directory_)),
      pid_(std::exchange(other.pid_, 0)),
      readiness_(std::move(other.readiness_)) {}

EmbeddedDaemon::~EmbeddedDaemon() { Stop(); }

std::string EmbeddedDaemon::socket() const { return directory_ + "/" + control::kClientSocketName; }

void EmbeddedDaemon::Stop() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGTERM);
  const auto deadline = steady_clock::now() + kStopLimit;
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (steady_clock::now() > deadline) ::kill(pid_, SIGKILL);
    ::usleep(2000);
  }
  pid_ = 0;
  RemovePrivateDirectory(directory_);
}

}  // namespace tally::launcher
