#include "client-shim/launcher/program.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/unique_fd.h"

namespace tally::launcher {
namespace {

bool IsRunnableFile(const std::string& path) {
  struct stat state {};
  return ::stat(path.c_str(), &state) == 0 && S_ISREG(state.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

Program Unrunnable(int exit_status, std::string sentence) {
  Program program;
  program.exit_status = exit_status;
  program.error = std::move(sentence);
  return program;
}

// A 64-bit ELF program without an interpreter never meets the dynamic loader.
bool IsStaticallyLinked(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Elf64_Ehdr header{};
  if (!file.valid() || ::pread(file.get(), &header, sizeof(header), 0) != sizeof(header)) return false;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return false;
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > 128) return false;
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  const size_t size = segments.size() * sizeof(Elf64_Phdr);
  if (::pread(file.get(), segments.data(), size, static_cast<off_t>(header.e_phoff)) != static_cast<ssize_t>(size)) {
    return false;
  }
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_INTERP) return false;
  }
  return true;
}

// For programs that get rights from their file, the loader ignores LD_LIBRARY_PATH and LD_PRELOAD.
bool GainsRights(const std::string& path) {
  struct stat state {};
  if (::stat(path.c_str(), &state) != 0) return false;
  if ((state.st_mode & S_ISUID) != 0 && state.st_uid != ::geteuid()) return true;
  if ((state.st_mode & S_ISGID) != 0 && state.st_gid != ::getegid()) return true;
  return ::geteuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

Program Inspect(const std::string& path) {
  Program program;
  program.path = path;
  if (IsStaticallyLinked(path)) {
    program.warning = fmt::format(
        "'{}' is statically linked, so it cannot load Tally's driver library and will find no GPU here", path);
  } else if (GainsRights(path)) {
    program.warning = fmt::format(
        "'{}' has a set-user-id bit or file capabilities, so the loader keeps Tally's driver library from it", path);
  }
  return program;
}

}  // namespace

Program FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    struct stat state {};
    if (::stat(name.c_str(), &state) != 0) {
      return Unrunnable(errno == ENOENT || errno == ENOTDIR ? 127 : 126,
                        fmt::format("cannot run '{}': {}", name, std::strerror(errno)));
    }
    if (S_ISDIR(state.st_mode)) return Unrunnable(126, fmt::format("cannot run '{}': it is a directory", name));
    if (!IsRunnableFile(name)) {
      return Unrunnable(126, fmt::format("cannot run '{}': it is not an executable file (chmod +x?)", name));
    }
    return Inspect(name);
  }
  const char* variable = std::getenv("PATH");
  const std::string directories = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (size_t start = 0; start <= directories.size();) {
    const size_t end = std::min(directories.find(':', start), directories.size());
    const std::string directory = end == start ? "." : directories.substr(start, end - start);
    if (IsRunnableFile(directory + "/" + name)) return Inspect(directory + "/" + name);
    start = end + 1;
  }
  return Unrunnable(127, fmt::format("there is no program '{}' in PATH{}", name,
                                     IsRunnableFile("./" + name) ? fmt::format(" (did you mean ./{}?)", name) : ""));
}

}  // namespace tally::launcher
