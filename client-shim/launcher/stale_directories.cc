#include "client-shim/launcher/stale_directories.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/unique_fd.h"
#include "proto/control/socket_paths.h"

namespace tally::launcher {
namespace {

std::vector<std::string> NamesIn(const std::string& path, const char* prefix) {
  std::vector<std::string> names;
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return names;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name.starts_with(prefix) && name != "." && name != "..") names.push_back(name);
  }
  ::closedir(directory);
  return names;
}

// An executor outlives a daemon that was killed for as long as its program runs.
bool HasExecutor(const std::string& path) {
  constexpr const char* kPrefix = "executor-";
  for (const std::string& name : NamesIn(path, kPrefix)) {
    char comm[16] = {};
    const std::string place = fmt::format("/proc/{}/comm", name.substr(std::strlen(kPrefix)));
    const UniqueFd file(::open(place.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.valid() && ::read(file.get(), comm, sizeof(comm)) > 0 && std::strcmp(comm, "tally-executor\n") == 0) {
      return true;
    }
  }
  return false;
}

bool IsStale(const std::string& path, std::chrono::milliseconds start_limit) {
  struct stat state {};
  if (::lstat(path.c_str(), &state) != 0 || !S_ISDIR(state.st_mode) || state.st_uid != ::geteuid()) return false;
  const UniqueFd lock(::open((path + "/tallyd.lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct stat locked {};
  // A tallyd that holds the lock writes its process id at once; before that it looks like one that never came.
  if (!lock.valid() || ::fstat(lock.get(), &locked) != 0 || locked.st_size == 0) {
    return std::chrono::seconds(std::time(nullptr) - state.st_mtime) > start_limit;
  }
  return ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 && !HasExecutor(path);
}

}  // namespace

void RemovePrivateDirectory(const std::string& path) {
  const std::string clients = path + "/" + control::kClientDirectoryName;
  for (const std::string& name : NamesIn(clients, "")) ::unlink((clients + "/" + name).c_str());
  ::rmdir(clients.c_str());
  for (const std::string& name : NamesIn(path, "")) ::unlink((path + "/" + name).c_str());
  ::rmdir(path.c_str());
}

void RemoveStaleDirectories(const std::string& parent, std::chrono::milliseconds start_limit) {
  for (const std::string& name : NamesIn(parent, kPrivateDirectoryPrefix)) {
    const std::string path = parent + "/" + name;
    if (IsStale(path, start_limit)) RemovePrivateDirectory(path);
  }
}

}  // namespace tally::launcher
