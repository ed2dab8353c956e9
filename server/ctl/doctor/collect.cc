#include "server/ctl/doctor/collect.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/unique_fd.h"
#include "base/unix_socket.h"
#include "proto/control/cache_directory.h"
#include "proto/driver/driver_directories.h"
#include "server/ctl/client_library.h"
#include "server/ctl/control_call.h"
#include "server/ctl/doctor/switch_test.h"

namespace tally::cli {
namespace {

constexpr std::chrono::milliseconds kAnswerLimit{2000};

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// What stands in the line that begins with `key`, behind it; empty if there is none.
std::string LineOf(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key)) return line.substr(key.size());
  }
  return "";
}

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\n");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  DIR* const entries = ::opendir(directory.c_str());
  if (entries == nullptr) return names;
  while (const dirent* entry = ::readdir(entries)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(entries);
  std::sort(names.begin(), names.end());
  return names;
}

// "550.54.15"
bool IsVersion(const std::string& word) {
  return !word.empty() && std::isdigit(static_cast<unsigned char>(word.front())) != 0 &&
         word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos;
}

uint64_t ParseLimit(const std::string& text) {
  uint64_t number = kNoLimit;
  const std::string word = Trimmed(text);
  std::from_chars(word.data(), word.data() + word.size(), number);
  return number;
}

// Takes the directory's limit if it is the lowest so far.
void TakeTasks(const std::string& directory, Limits* limits) {
  const uint64_t most = ParseLimit(ReadText(directory + "/pids.max"));
  if (most >= limits->most_tasks) return;
  limits->most_tasks = most;
  limits->num_tasks = ParseLimit(ReadText(directory + "/pids.current"));
  if (limits->num_tasks == kNoLimit) limits->num_tasks = 0;
}

// Of the cgroup and all above it. What a container sees of its cgroup's path need not exist: then there is the root.
void ReadTasks(pid_t pid, const std::string& root, Limits* limits) {
  std::istringstream lines(ReadText(fmt::format("{}/proc/{}/cgroup", root, pid)));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string mount = root + "/sys/fs/cgroup";
    if (controllers == "pids") {
      mount += "/pids";
    } else if (!controllers.empty()) {
      continue;
    }
    for (std::string path = line.substr(second + 1);; path.erase(path.rfind('/'))) {
      if (path == "/") path.clear();
      TakeTasks(mount + path, limits);
      if (path.empty() || path.find('/') == std::string::npos) break;
    }
  }
}

void FindDriverLibrary(const std::string& client_library, const std::string& root, Facts* facts) {
  for (const char* directory : kDriverDirectories) {
    char resolved[PATH_MAX];
    if (::realpath(fmt::format("{}{}/libcuda.so.1", root, directory).c_str(), resolved) == nullptr) continue;
    const std::string path = resolved;
    if (path == client_library) continue;
    facts->driver_library = path;
    const std::string name = path.substr(path.rfind('/') + 1);
    const std::string version = name.substr(std::min(name.size(), std::string("libcuda.so.").size()));
    if (IsVersion(version)) facts->driver_library_version = version;
    return;
  }
}

void InspectClientLibrary(Facts* facts) {
  const auto library = FindClientLibrary();
  if (!library) {
    facts->client_problem = library.error().message();
    return;
  }
  facts->client_library = *library;
  const auto file = ReadProgram(*library);
  if (!file) {
    facts->client_problem = file.error().message();
  } else {
    facts->client_needs = file->file.needs_glibc;
  }
}

SwitchFact ToFact(const control::v1::SwitchTest& test) {
  return {.problem = "", .acts = test.acts(), .p99_us = test.p99_us(), .own_p99_us = test.own_p99_us()};
}

// Users who do not run tallyd are told less.
void AskDaemon(const std::string& socket, Facts* facts) {
  DaemonFact& daemon = facts->daemon;
  control::v1::VersionResponse version;
  daemon.silence = CallControl(socket, kAnswerLimit,
                               [&](auto& stub, auto& context) { return stub.Version(&context, {}, &version); });
  if (!daemon.silence.empty()) return;
  daemon.pid = version.pid();
  daemon.version = version.version();
  daemon.protocol_version = version.protocol_version();
  daemon.api_table_hash = version.api_table_hash();
  daemon.driver = version.driver();
  daemon.sees_own_only = version.sees_own_only();
  if (!daemon.sees_own_only) daemon.cache_directory = version.cache_directory();
  if (version.has_switch_test()) facts->switch_test = ToFact(version.switch_test());
  control::v1::ListExecutorsResponse list;
  daemon.silence = CallControl(socket, kAnswerLimit,
                               [&](auto& stub, auto& context) { return stub.ListExecutors(&context, {}, &list); });
  for (const control::v1::Executor& executor : list.executors()) {
    daemon.executors.push_back({.pid = executor.pid(),
                                .domain = executor.domain(),
                                .driver = executor.driver(),
                                .time_slice_us = executor.time_slice_us(),
                                .is_time_slice_refused = executor.is_time_slice_refused(),
                                .descheduling = executor.suspension()});
  }
}

void FindDaemon(const Question& question, Facts* facts) {
  DaemonFact& daemon = facts->daemon;
  daemon.socket = question.socket;
  const auto connection = ConnectUnix(question.socket);
  if (!connection) {
    daemon.unreachable = connection.error().code() == StatusCode::kPermissionDenied
                             ? fmt::format("the tallyd at {} is not open to user {}", question.socket, ::geteuid())
                             : fmt::format("no tallyd serves {}", question.socket);
    return;
  }
  daemon.is_there = true;
  // Where systemd made the socket, that is who "listens": then the control socket knows better.
  if (const auto peer = GetPeerCredentials(connection->get())) {
    daemon.pid = peer->pid;
    daemon.account.uid = peer->uid;
  }
  AskDaemon(question.socket, facts);
  if (daemon.pid > 1) {
    daemon.account = AccountOf(daemon.pid, question.root);
    daemon.limits = LimitsOf(daemon.pid, question.root);
  }
}

void FindCache(const std::string& root, Facts* facts) {
  const DaemonFact& daemon = facts->daemon;
  // The daemon of the machine has a user of its own, without a home.
  const bool is_own = !daemon.is_there || daemon.account.uid == facts->self.uid;
  const std::string path =
      daemon.cache_directory.value_or(control::DefaultCacheDirectory(is_own ? facts->self.uid : uid_t{0}));
  if (path.empty()) return;
  facts->cache_directory = Stat(root + path);
  struct statvfs room {};
  if (facts->cache_directory.exists && ::statvfs((root + path).c_str(), &room) == 0) {
    facts->cache_free_bytes = uint64_t{room.f_bavail} * room.f_frsize;
  }
}

// As a shell would find it; a file here comes first, so that libraries can be named.
std::string FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  if (path == nullptr || name.find('/') != std::string::npos || ::access(name.c_str(), F_OK) == 0) return name;
  std::istringstream directories(path);
  for (std::string directory; std::getline(directories, directory, ':');) {
    const std::string candidate = directory + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return name;
}

Status Unreadable(const std::string& path, int error) {
  const StatusCode code = StatusFromErrno(error, "").code();
  return Status(code, fmt::format("cannot read '{}': {}", path, std::strerror(error)));
}

}  // namespace

std::string KernelDriverVersion(const std::string& root) {
  std::istringstream words(LineOf(ReadText(root + "/proc/driver/nvidia/version"), "NVRM version:"));
  for (std::string word; words >> word;) {
    if (IsVersion(word)) return word;
  }
  return "";
}

std::vector<std::string> GpuModels(const std::string& root) {
  std::vector<std::string> models;
  const std::string directory = root + "/proc/driver/nvidia/gpus";
  for (const std::string& gpu : NamesIn(directory)) {
    const std::string model = Trimmed(LineOf(ReadText(fmt::format("{}/{}/information", directory, gpu)), "Model:"));
    if (!model.empty()) models.push_back(model);
  }
  return models;
}

std::vector<FileFact> DeviceFiles(const std::string& root) {
  std::vector<FileFact> files;
  for (const std::string& name : NamesIn(root + "/dev")) {
    const bool is_gpu =
        name.starts_with("nvidia") && name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos;
    if (is_gpu || name == "nvidiactl" || name == "nvidia-uvm") files.push_back(Stat(root + "/dev/" + name));
  }
  return files;
}

Account AccountOf(pid_t pid, const std::string& root) {
  const std::string status = ReadText(fmt::format("{}/proc/{}/status", root, pid));
  Account account;
  uid_t real = 0;
  gid_t real_group = 0, group = 0;
  std::istringstream(LineOf(status, "Uid:")) >> real >> account.uid;
  if (std::istringstream(LineOf(status, "Gid:")) >> real_group >> group) account.groups.push_back(group);
  std::istringstream groups(LineOf(status, "Groups:"));
  while (groups >> group) account.groups.push_back(group);
  return account;
}

Limits LimitsOf(pid_t pid, const std::string& root) {
  Limits limits;
  const std::string locked = LineOf(ReadText(fmt::format("{}/proc/{}/limits", root, pid)), "Max locked memory");
  limits.is_known = !locked.empty();
  limits.locked_bytes = ParseLimit(Trimmed(locked).substr(0, Trimmed(locked).find(' ')));
  ReadTasks(pid, root, &limits);
  return limits;
}

FileFact Stat(const std::string& path) {
  FileFact fact;
  fact.path = path;
  struct stat state {};
  if (::stat(path.c_str(), &state) != 0) {
    if (errno != ENOENT && errno != ENOTDIR)
      fact.problem = fmt::format("cannot look at {}: {}", path, std::strerror(errno));
    return fact;
  }
  fact.exists = true;
  fact.mode = state.st_mode;
  fact.owner = state.st_uid;
  fact.group = state.st_gid;
  return fact;
}

Result<ProgramFact> ReadProgram(const std::string& path) {
  // Without O_NONBLOCK a pipe would be waited for.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat state {};
  if (!fd.valid() || ::fstat(fd.get(), &state) != 0) return std::unexpected(Unreadable(path, errno));
  if (!S_ISREG(state.st_mode)) {
    return Error(StatusCode::kInvalidArgument, fmt::format("'{}' is no file: name a program", path));
  }
  const auto size = static_cast<size_t>(state.st_size);
  void* const data = size == 0 ? nullptr : ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return std::unexpected(Unreadable(path, errno));
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(data), size);
  auto file = images::ReadProgramFile(bytes);
  const bool is_script = size > 2 && std::memcmp(data, "#!", 2) == 0;
  if (data != nullptr) ::munmap(data, size);
  if (is_script) {
    return Error(StatusCode::kInvalidArgument,
                 fmt::format("'{}' is a script: name the program that runs it, or a library that it loads", path));
  }
  if (!file) {
    return Error(file.error().code(),
                 fmt::format("'{}' is no program that can be judged ({}): name a program or library", path,
                             file.error().message()));
  }
  return ProgramFact{path, std::move(*file)};
}

Result<Facts> CollectFacts(const Question& question, Progress& progress) {
  Facts facts;
  const std::string& root = question.root;
  if (!question.program.empty()) {
    progress = "the program's file";
    auto program = ReadProgram(FindProgram(question.program));
    if (!program) return std::unexpected(program.error());
    facts.program = std::move(*program);
  }
  progress = "this machine";
  facts.self = AccountOf(::getpid(), "");
  facts.limits = LimitsOf(::getpid(), "");
  facts.glibc = images::ParseGlibcVersion(fmt::format("GLIBC_{}", ::gnu_get_libc_version()));
  InspectClientLibrary(&facts);
  facts.driver_version = KernelDriverVersion(root);
  FindDriverLibrary(facts.client_library, root, &facts);
  facts.gpus = GpuModels(root);
  facts.devices = DeviceFiles(root);
  progress = "tallyd's sockets";
  facts.client_socket = Stat(question.socket);
  const size_t end = question.socket.rfind('/');
  facts.socket_directory = Stat(end == std::string::npos ? "." : question.socket.substr(0, std::max<size_t>(end, 1)));
  progress = "tallyd";
  FindDaemon(question, &facts);
  progress = "the cache directory";
  FindCache(root, &facts);
  if (question.tests_switches) {
    progress = "tally-switch-test";
    facts.switch_test = RunSwitchTest(kSwitchTestLimit);
  }
  return facts;
}

}  // namespace tally::cli
