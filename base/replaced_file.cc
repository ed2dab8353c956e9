#include "base/replaced_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/unique_fd.h"

namespace tally {
namespace {

bool WriteText(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

Status ReplaceFile(const std::string& path, std::string_view text, mode_t mode) {
  std::string beside = path + ".XXXXXX";  // of a name that nobody else has: two may write at once
  const UniqueFd file(::mkostemp(beside.data(), O_CLOEXEC));
  if (!file.valid()) return StatusFromErrno(errno, fmt::format("write '{}'", path));
  if (WriteText(file.get(), text) && ::fchmod(file.get(), mode) == 0 && ::rename(beside.c_str(), path.c_str()) == 0) {
    return OkStatus();
  }
  const Status failed = StatusFromErrno(errno, fmt::format("write '{}'", path));
  ::unlink(beside.c_str());
  return failed;
}

}  // namespace tally
