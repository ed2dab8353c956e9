#include "client-shim/launcher/loader.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace tally::launcher {
namespace {

constexpr size_t kMaxAnswer = 65'536;

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool IsLoaderName(std::string_view path) {
  const std::string_view name = BaseName(path);
  return name.starts_with("ld-") || name == "ld.so";
}

std::unexpected<Status> Refuse(const std::string& path, std::string_view reason) {
  return Error(StatusCode::kUnimplemented, fmt::format("cannot run '{}' under Tally: {}", path, reason));
}

template <typename Part>
bool ReadAt(int fd, uint64_t offset, Part* parts, size_t count) {
  const size_t size = count * sizeof(Part);
  return ::pread(fd, parts, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

// All of what `fd` gives, up to a limit, until its other end is closed.
std::string ReadAll(int fd) {
  std::string text;
  for (char letters[4096]; text.size() < kMaxAnswer;) {
    const ssize_t size = ::read(fd, letters, sizeof(letters));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(letters, static_cast<size_t>(size));
  }
  return text;
}

// The line that says what is missing, or the first one.
std::string_view Complaint(std::string_view answer) {
  const size_t word = answer.find("not found");
  const size_t start = word == std::string_view::npos ? 0 : answer.rfind('\n', word) + 1;  // npos + 1 is 0
  std::string_view line = answer.substr(start, answer.find('\n', start) - start);
  line.remove_prefix(std::min(line.find_first_not_of("\t "), line.size()));
  return line;
}

}  // namespace

Result<std::string> FindLoader(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Elf64_Ehdr header{};
  if (!file.valid() || !ReadAt(file.get(), 0, &header, 1)) return std::string();
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return std::string();
  if (header.e_ident[EI_CLASS] == ELFCLASS32) {
    return Refuse(path, "it is a 32-bit program, and Tally's driver library is for 64-bit ones");
  }
  if (header.e_machine != EM_X86_64) return Refuse(path, "it is not a program for x86-64");
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > 128) return std::string();
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!ReadAt(file.get(), header.e_phoff, segments.data(), segments.size())) return std::string();
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_INTERP) continue;
    std::string loader(std::min<uint64_t>(segment.p_filesz, 4096), '\0');
    if (!ReadAt(file.get(), segment.p_offset, loader.data(), loader.size())) return std::string();
    loader.resize(std::strlen(loader.c_str()));
    if (BaseName(loader).starts_with("ld-musl")) {
      return Refuse(path, "it was built for musl, and Tally's driver library needs glibc 2.28 or newer");
    }
    return loader;
  }
  if (IsLoaderName(path)) {
    return Refuse(path, "it is a loader, so nobody can tell what it will load: name the program itself");
  }
  return Refuse(path, "it is statically linked, so it cannot load Tally's driver library");
}

Status CheckLoader(const std::string& program, const std::string& loader, const std::string& library) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return StatusFromErrno(errno, "pipe");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, write_end.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, write_end.get(), STDERR_FILENO);
  std::string list = "--list";
  char* arguments[] = {const_cast<char*>(loader.c_str()), list.data(), const_cast<char*>(library.c_str()), nullptr};
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, loader.c_str(), &files, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    return Refuse(program, fmt::format("its loader '{}' cannot be started ({})", loader, std::strerror(error))).error();
  }
  write_end.Reset();
  const std::string answer = ReadAll(read_end.get());
  int wait_status = 0;
  while (::waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
  }
  if (wait_status == 0 && answer.find("not found") == std::string::npos) return OkStatus();
  return Refuse(program, fmt::format("its loader '{}' cannot load Tally's driver library, which needs glibc 2.28 or "
                                     "newer; it says: {}",
                                     loader, answer.empty() ? "nothing" : Complaint(answer)))
      .error();
}

}  // namespace tally::launcher
