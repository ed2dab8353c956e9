#include "server/daemon/runtime_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "base/private_path.h"
#include "proto/control/sharing_door_abi.h"
#include "proto/control/socket_paths.h"
#include "proto/control/tenant_page_name.h"

namespace tally::server {
namespace {

constexpr const char* kExecutorPrefix = "executor-";

// A process name as in /proc/PID/comm: at most 15 characters.
bool IsExecutor(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  return std::getline(file, name) && name == "tally-executor";
}

template <typename Number>
Number ReadNumber(int fd) {
  char text[32] = {};
  const ssize_t size = ::pread(fd, text, sizeof(text) - 1, 0);
  Number number = 0;
  if (size > 0) std::from_chars(text, text + size, number);
  return number;
}

}  // namespace

Result<std::unique_ptr<RuntimeDir>> RuntimeDir::Open(const std::string& path, bool others_may_connect) {
  if (const Status made = MakePrivateDirectories(path); !made.ok()) return std::unexpected(made);
  struct stat state {};
  if (::lstat(path.c_str(), &state) != 0) return std::unexpected(StatusFromErrno(errno, path));
  if (!S_ISDIR(state.st_mode)) return Error(StatusCode::kFailedPrecondition, fmt::format("'{}' is no directory", path));
  if (state.st_uid != ::geteuid()) {
    return Error(StatusCode::kPermissionDenied,
                 fmt::format("runtime directory '{}' belongs to user {}, not to you (user {}): choose another with "
                             "--socket",
                             path, state.st_uid, ::geteuid()));
  }
  if ((state.st_mode & 022) != 0) {
    return Error(StatusCode::kPermissionDenied,
                 fmt::format("runtime directory '{}' can be written by others: choose one that only you can write "
                             "(e.g. --socket {}/tally/tally.sock)",
                             path, path));
  }
  if (const Status checked = CheckPrivatePath(path); !checked.ok()) {
    return std::unexpected(checked.With(fmt::format("runtime directory '{}' (another is chosen with --socket)", path)));
  }
  UniqueFd lock(::open((path + "/tallyd.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return std::unexpected(StatusFromErrno(errno, fmt::format("open '{}/tallyd.lock'", path)));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error(StatusCode::kAlreadyExists,
                 fmt::format("another tallyd (process {}) already serves '{}': use it, end it, or choose another "
                             "directory with --socket",
                             ReadNumber<pid_t>(lock.get()), path));
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(lock.get(), 0) != 0 || ::pwrite(lock.get(), pid.data(), pid.size(), 0) < 0) {
    return std::unexpected(StatusFromErrno(errno, fmt::format("write '{}/tallyd.lock'", path)));
  }
  UniqueFd ids(::open((path + "/next-session").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!ids.valid()) return std::unexpected(StatusFromErrno(errno, fmt::format("open '{}/next-session'", path)));
  const uint64_t next = ReadNumber<uint64_t>(ids.get());
  std::unique_ptr<RuntimeDir> opened(new RuntimeDir(path, std::move(lock), std::move(ids), next == 0 ? 1 : next));
  const std::string clients = opened->PathOf(control::kClientDirectoryName);
  if (const Status made = MakePrivateDirectories(clients); !made.ok()) return std::unexpected(made);
  if (const Status checked = CheckPrivatePath(clients); !checked.ok()) return std::unexpected(checked);
  if (others_may_connect) opened->LetOthersConnect();
  return opened;
}

void RuntimeDir::LetOthersConnect() {
  ::chmod(path_.c_str(), 0711);
  ::chmod(PathOf(control::kClientDirectoryName).c_str(), 0711);
}

void RuntimeDir::LinkClientSocket(const std::string& name) {
  link_ = PathOf(name);
  // Renamed into its place: there is no moment without a link, and what an older tallyd left there goes.
  const std::string beside = link_ + ".new";
  ::unlink(beside.c_str());
  const std::string target = fmt::format("{}/{}", control::kClientDirectoryName, name);
  if (::symlink(target.c_str(), beside.c_str()) == 0 && ::rename(beside.c_str(), link_.c_str()) == 0) return;
  LOG_WARNING("cannot link '{}' to '{}': {}; clients find the socket there only", link_, target, std::strerror(errno));
}

Result<std::string> RuntimeDir::MakeGrantDirectory(const std::string& tenant) {
  const std::string grants = PathOf(control::kGrantDirectoryName);
  const std::string directory = grants + "/" + tenant;
  if (const Status made = MakePrivateDirectories(grants); !made.ok()) return std::unexpected(made);
  if (const Status checked = CheckPrivatePath(grants); !checked.ok()) return std::unexpected(checked);
  if (::mkdir(directory.c_str(), 0711) != 0 && errno != EEXIST) {
    return std::unexpected(StatusFromErrno(errno, fmt::format("make '{}'", directory)));
  }
  // Not what a link leads to.
  const UniqueFd opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat state {};
  if (!opened.valid() || ::fstat(opened.get(), &state) != 0 || state.st_uid != ::geteuid()) {
    return Error(StatusCode::kFailedPrecondition,
                 fmt::format("'{}' is there and is no directory of user {}: remove it", directory, ::geteuid()));
  }
  if (::fchmod(opened.get(), 0711) != 0) return std::unexpected(StatusFromErrno(errno, "chmod '" + directory + "'"));
  return control::GrantSocketIn(path_, tenant);
}

void RuntimeDir::RemoveGrantDirectory(const std::string& tenant) {
  ::unlink(control::GrantSocketIn(path_, tenant).c_str());
  ::rmdir((PathOf(control::kGrantDirectoryName) + "/" + tenant).c_str());
}

std::vector<std::string> RuntimeDir::GrantDirectories() const {
  std::vector<std::string> names;
  DIR* directory = ::opendir(PathOf(control::kGrantDirectoryName).c_str());
  if (directory == nullptr) return names;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(directory);
  return names;
}

RuntimeDir::RuntimeDir(std::string path, UniqueFd lock, UniqueFd ids, uint64_t next_session_id)
    : path_(std::move(path)), lock_(std::move(lock)), ids_(std::move(ids)), next_session_id_(next_session_id) {}

RuntimeDir::~RuntimeDir() = default;

uint64_t RuntimeDir::TakeSessionId() {
  const uint64_t id = next_session_id_++;
  const std::string text = fmt::format("{}\n", next_session_id_);
  if (::pwrite(ids_.get(), text.data(), text.size(), 0) < 0) {
    LOG_WARNING("cannot note the next session id: {}", std::strerror(errno));
  }
  return id;
}

void RuntimeDir::NoteExecutor(pid_t pid) {
  const UniqueFd file(
      ::open(PathOf(fmt::format("{}{}", kExecutorPrefix, pid)).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) LOG_WARNING("cannot note executor {}: {}", pid, std::strerror(errno));
}

void RuntimeDir::ForgetExecutor(pid_t pid) {
  for (const char* prefix : {kExecutorPrefix, control::kDoorPrefix})
    ::unlink(PathOf(fmt::format("{}{}", prefix, pid)).c_str());
}

std::vector<pid_t> RuntimeDir::LivingExecutors() {
  std::vector<pid_t> living;
  std::vector<pid_t> dead;
  DIR* directory = ::opendir(path_.c_str());
  if (directory == nullptr) return living;
  while (const dirent* entry = ::readdir(directory)) {
    if (std::strncmp(entry->d_name, kExecutorPrefix, std::strlen(kExecutorPrefix)) != 0) continue;
    const char* digits = entry->d_name + std::strlen(kExecutorPrefix);
    pid_t pid = 0;
    std::from_chars(digits, digits + std::strlen(digits), pid);
    if (pid <= 0) continue;
    (IsExecutor(pid) ? living : dead).push_back(pid);
  }
  ::closedir(directory);
  for (const pid_t pid : dead) ForgetExecutor(pid);
  return living;
}

void RuntimeDir::RemoveFiles(bool and_directory) {
  for (const char* name : {control::kControlSocketName, control::kExecutorSocketName, control::kViewSocketName})
    ::unlink(PathOf(name).c_str());
  // A socket of the service manager stays, and so does its link.
  if (!link_.empty() && ::access(link_.c_str(), F_OK) != 0) ::unlink(link_.c_str());
  if (!and_directory) return;  // the lock file stays: removing it would let two daemons hold "the" lock
  for (const char* name : {"activity", "ledger", "ledger.next", "next-session", "grants.json", "tallyd.lock"})
    ::unlink(PathOf(name).c_str());
  ::rmdir(PathOf(control::kClientDirectoryName).c_str());
  for (const std::string& tenant : GrantDirectories()) RemoveGrantDirectory(tenant);
  ::rmdir(PathOf(control::kGrantDirectoryName).c_str());
  std::error_code ignored;
  std::filesystem::remove_all(PathOf(control::kTenantsDirectory), ignored);
  for (const pid_t pid : LivingExecutors()) ForgetExecutor(pid);
  ::rmdir(path_.c_str());
}

}  // namespace tally::server
