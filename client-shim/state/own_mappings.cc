#include "client-shim/state/own_mappings.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tally::client_shim {
namespace {

std::string ReadMaps() {
  std::string text;
  const UniqueFd file(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return text;
  char piece[16384];
  for (;;) {
    const ssize_t size = ::read(file.get(), piece, sizeof(piece));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    text.append(piece, static_cast<size_t>(size));
  }
}

bool ParseLine(const std::string& line, Mapping* mapping) {
  char rights[5] = {};
  unsigned major_number = 0, minor_number = 0;
  uint64_t inode = 0;
  int path_at = 0;
  const int fields =
      std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &mapping->begin,
                  &mapping->end, rights, &mapping->file_offset_bytes, &major_number, &minor_number, &inode, &path_at);
  if (fields != 7) return false;
  mapping->device = makedev(major_number, minor_number);
  mapping->inode = inode;
  mapping->is_readable = rights[0] == 'r';
  mapping->is_writable = rights[1] == 'w';
  mapping->is_executable = rights[2] == 'x';
  mapping->is_shared = rights[3] == 's';
  if (path_at > 0 && static_cast<size_t>(path_at) < line.size()) mapping->path = line.substr(path_at);
  return true;
}

bool IsSameFile(int fd, const Mapping& mapping) {
  struct stat file {};
  return ::fstat(fd, &file) == 0 && file.st_dev == mapping.device && file.st_ino == mapping.inode;
}

UniqueFd OpenIfSame(const std::string& path, const Mapping& mapping) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  return file.valid() && IsSameFile(file.get(), mapping) ? std::move(file) : UniqueFd();
}

// By its name; by a descriptor that the program still holds, for files that have none any more; or as the kernel's own
// link to it, which takes privilege.
UniqueFd OpenBehind(const Mapping& mapping) {
  if (UniqueFd named = OpenIfSame(mapping.path, mapping); named.valid()) return named;
  if (DIR* descriptors = ::opendir("/proc/self/fd"); descriptors != nullptr) {
    UniqueFd found;
    while (const dirent* entry = ::readdir(descriptors)) {
      const std::string_view name = entry->d_name;
      int fd = -1;
      if (std::from_chars(name.data(), name.data() + name.size(), fd).ec != std::errc() || !IsSameFile(fd, mapping))
        continue;
      found = OpenIfSame(fmt::format("/proc/self/fd/{}", fd), mapping);
      if (found.valid()) break;
    }
    ::closedir(descriptors);
    if (found.valid()) return found;
  }
  return OpenIfSame(fmt::format("/proc/self/map_files/{:x}-{:x}", mapping.begin, mapping.end), mapping);
}

bool IsHugePages(const Mapping& mapping) { return mapping.path.starts_with("/anon_hugepage"); }

}  // namespace

std::vector<Mapping> MappingsWithin(uint64_t begin, uint64_t end) {
  std::vector<Mapping> mappings;
  const std::string text = ReadMaps();
  for (size_t at = 0; at < text.size();) {
    size_t line_end = text.find('\n', at);
    if (line_end == std::string::npos) line_end = text.size();
    // Most lines are elsewhere: their end is all that is looked at.
    const size_t dash = text.find('-', at);
    if (dash != std::string::npos && std::strtoull(text.c_str() + dash + 1, nullptr, 16) > begin) {
      Mapping mapping;
      if (ParseLine(text.substr(at, line_end - at), &mapping)) {
        if (mapping.begin >= end) break;
        mappings.push_back(std::move(mapping));
      }
    }
    at = line_end + 1;
  }
  return mappings;
}

RangeBacking FindBacking(uint64_t begin, uint64_t end) {
  RangeBacking backing;
  const std::vector<Mapping> mappings = MappingsWithin(begin, end);
  uint64_t reached = begin;
  for (const Mapping& mapping : mappings) {
    if (mapping.begin > reached || !mapping.is_readable || !mapping.is_writable) return backing;
    reached = mapping.end;
  }
  if (reached < end) return backing;
  const Mapping& first = mappings.front();
  backing.kind = first.is_shared ? Backing::kFile : Backing::kOwnPages;
  for (const Mapping& mapping : mappings) {
    const bool goes_on =
        !mapping.is_shared || (mapping.device == first.device && mapping.inode == first.inode &&
                               mapping.file_offset_bytes - first.file_offset_bytes == mapping.begin - first.begin);
    if (mapping.is_executable || mapping.is_shared != first.is_shared || !goes_on || IsHugePages(mapping)) {
      backing.kind = Backing::kForeign;
      return backing;
    }
  }
  if (backing.kind == Backing::kFile) {
    backing.file = OpenBehind(first);
    backing.file_offset_bytes = first.file_offset_bytes + (begin - first.begin);
  }
  return backing;
}

}  // namespace tally::client_shim
