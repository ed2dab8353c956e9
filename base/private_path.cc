#include "base/private_path.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

namespace tally {
namespace {

constexpr int kMostLinks = 40;  // as the kernel

// Takes the first part of "a/b/c".
std::string TakePart(std::string& rest) {
  const size_t end = rest.find('/');
  std::string part = rest.substr(0, end);
  rest.erase(0, end == std::string::npos ? end : end + 1);
  return part;
}

Status Refuse(std::string sentence) { return Status(StatusCode::kPermissionDenied, std::move(sentence)); }

Status CheckPart(const std::string& path, const struct stat& state, bool is_last) {
  const uid_t own = ::geteuid();
  if (state.st_uid != own && state.st_uid != 0) {
    return Refuse(fmt::format(
        "'{}' belongs to user {}, who could put something else in its place: choose a path of your own (user {}) and "
        "root",
        path, state.st_uid, own));
  }
  const bool may_stay = S_ISLNK(state.st_mode) || ((state.st_mode & S_ISVTX) != 0 && !is_last);
  if ((state.st_mode & 022) != 0 && !may_stay) {
    return Refuse(
        fmt::format("'{}' can be written by others, who could put something else in it: chmod go-w '{}', or "
                    "choose another path",
                    path, path));
  }
  return OkStatus();
}

}  // namespace

Status MakePrivateDirectories(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return OkStatus();
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      return StatusFromErrno(errno, fmt::format("create directory '{}'", part));
    }
    if (end == std::string::npos) return OkStatus();
  }
}

Status CheckPrivatePath(const std::string& path) {
  std::string walked = "/", rest = path;
  int num_links = 0;
  for (;;) {
    struct stat state {};
    if (::lstat(walked.c_str(), &state) != 0) {
      return errno == ENOENT ? OkStatus() : StatusFromErrno(errno, fmt::format("look at '{}'", walked));
    }
    const bool is_last = rest.find_first_not_of("/.") == std::string::npos;
    TALLY_RETURN_IF_ERROR(CheckPart(walked, state, is_last && S_ISDIR(state.st_mode)));
    if (S_ISLNK(state.st_mode)) {
      char target[PATH_MAX];
      const ssize_t size = ::readlink(walked.c_str(), target, sizeof(target));
      if (size < 0 || ++num_links > kMostLinks) {
        return StatusFromErrno(size < 0 ? errno : ELOOP, fmt::format("read the link '{}'", walked));
      }
      rest = std::string(target, static_cast<size_t>(size)) + "/" + rest;
      walked = rest.front() == '/' ? "/" : walked.substr(0, walked.rfind('/') + 1);
    }
    std::string part;
    while (part.empty() || part == ".") {
      if (rest.empty()) return OkStatus();
      part = TakePart(rest);
    }
    if (part == "..") {
      walked.erase(std::max<size_t>(walked.find_last_of('/', walked.size() - 2) + 1, 1));
      continue;
    }
    if (walked.back() != '/') walked += '/';
    walked += part;
  }
}

}  // namespace tally
