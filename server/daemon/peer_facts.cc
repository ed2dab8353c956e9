#include "server/daemon/peer_facts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "base/printable.h"
#include "base/unique_fd.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace tally::server {
namespace {

constexpr size_t kMaxProcBytes = 16'384;

std::string ReadProc(pid_t pid, const char* name) {
  std::string text;
  const UniqueFd file(::open(fmt::format("/proc/{}/{}", pid, name).c_str(), O_RDONLY | O_CLOEXEC));
  char part[4096];
  ssize_t size = 0;
  while (file.valid() && text.size() < kMaxProcBytes && (size = ::read(file.get(), part, sizeof(part))) > 0) {
    text.append(part, static_cast<size_t>(size));
  }
  return text;
}

std::string_view LineBeginningWith(std::string_view text, std::string_view beginning) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.starts_with(beginning)) return line.substr(beginning.size());
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

}  // namespace

bool IsRootOfTheMachine(int socket, const PeerCredentials& peer) {
  if (peer.uid != 0 || peer.pid <= 0) return false;
  // The number of a process that has ended meanwhile could be another's: what was read counts if it still lives
  // afterwards. Kernels before 6.5 do not say which process it was.
  int pidfd = -1;
  socklen_t size = sizeof(pidfd);
  const bool has_pidfd = ::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0;
  const UniqueFd process(has_pidfd ? pidfd : -1);
  if (IsInAnotherNamespace(ReadProc(peer.pid, "status"))) return false;
  pollfd state{process.get(), POLLIN, 0};
  return !has_pidfd || ::poll(&state, 1, 0) == 0;
}

bool IsInAnotherNamespace(std::string_view status_file) {
  // Its number in each namespace from the reader's down: one alone is the reader's own.
  const std::string_view numbers = LineBeginningWith(status_file, "NSpid:\t");
  return numbers.empty() || numbers.find_first_of("\t ") != std::string_view::npos;
}

std::string CgroupOf(pid_t pid) { return pid > 0 ? CgroupIn(ReadProc(pid, "cgroup")) : ""; }

std::string CgroupIn(std::string_view cgroup_file) {
  std::string path = Printable(LineBeginningWith(cgroup_file, "0::"));  // of the one hierarchy of version 2
  std::ranges::replace(path, ' ', '?');
  // The end says which container it is.
  if (path.size() > kMaxCgroupLetters) path = "..." + path.substr(path.size() - (kMaxCgroupLetters - 3));
  return path;
}

std::string StartedAs(pid_t pid) {
  const std::string words = pid > 0 ? ReadProc(pid, "cmdline") : "";
  if (words.empty()) return "";
  char executable[PATH_MAX];
  const ssize_t size = ::readlink(fmt::format("/proc/{}/exe", pid).c_str(), executable, sizeof(executable));
  return std::string(executable, size > 0 ? static_cast<size_t>(size) : 0) + '\0' + words;
}

}  // namespace tally::server
