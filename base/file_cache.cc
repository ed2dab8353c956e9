#include "base/file_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/log.h"
#include "base/private_path.h"
#include "base/unique_fd.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxResultBytes = uint64_t{256} << 20;
constexpr uint64_t kMagic = 0x31'6568'6361'4354;  // "TCache1"

struct Header {
  uint64_t magic = kMagic;
  uint64_t source_bytes = 0;
  uint64_t result_bytes = 0;
  uint64_t checksum = 0;
};

XXH128_hash_t DigestOf(std::initializer_list<std::span<const std::byte>> parts, uint64_t seed) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_128bits_reset_withSeed(&state, seed);
  for (const std::span<const std::byte> part : parts) {
    const uint64_t size_bytes = part.size();
    XXH3_128bits_update(&state, &size_bytes, sizeof(size_bytes));
    XXH3_128bits_update(&state, part.data(), part.size());
  }
  return XXH3_128bits_digest(&state);
}

bool ReadAll(int fd, void* to, size_t size_bytes) {
  auto* place = static_cast<std::byte*>(to);
  while (size_bytes != 0) {
    const ssize_t got = ::read(fd, place, size_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    place += got;
    size_bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool WriteAll(int fd, const void* from, size_t size_bytes) {
  const auto* place = static_cast<const std::byte*>(from);
  while (size_bytes != 0) {
    const ssize_t put = ::write(fd, place, size_bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    place += put;
    size_bytes -= static_cast<size_t>(put);
  }
  return true;
}

}  // namespace

FileCache::Key FileCache::KeyOf(std::initializer_list<std::span<const std::byte>> parts) {
  const XXH128_hash_t first = DigestOf(parts, 0), second = DigestOf(parts, 0x74616c6c79);
  Key key{{first.high64, first.low64, second.high64, second.low64}, 0};
  for (const std::span<const std::byte> part : parts) key.source_bytes += part.size();
  return key;
}

std::string FileCache::PathOf(const Key& key) const {
  return fmt::format("{}/{:016x}{:016x}{:016x}{:016x}", directory_, key.digest[0], key.digest[1], key.digest[2],
                     key.digest[3]);
}

std::optional<FileCache::Content> FileCache::Find(const Key& key) const {
  if (directory_.empty()) return std::nullopt;
  const UniqueFd file(::open(PathOf(key).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid() || !IsOurs()) return std::nullopt;
  Header header;
  struct stat found {};
  if (!ReadAll(file.get(), &header, sizeof(header)) || ::fstat(file.get(), &found) != 0) return std::nullopt;
  if ((found.st_uid != ::geteuid() && found.st_uid != 0) || (found.st_mode & 022) != 0) return std::nullopt;
  if (header.magic != kMagic || header.source_bytes != key.source_bytes || header.result_bytes > kMaxResultBytes ||
      static_cast<uint64_t>(found.st_size) != sizeof(header) + header.result_bytes)
    return std::nullopt;
  Content result;
  result.size_bytes = header.result_bytes;
  result.bytes.reset(static_cast<std::byte*>(std::malloc(std::max<size_t>(1, result.size_bytes))));
  if (result.bytes == nullptr || !ReadAll(file.get(), result.bytes.get(), result.size_bytes)) return std::nullopt;
  if (XXH3_64bits(result.bytes.get(), result.size_bytes) != header.checksum) return std::nullopt;
  ::futimens(file.get(), nullptr);  // used now: Shrink() takes others first
  return result;
}

bool FileCache::Keep(const Key& key, std::span<const std::byte> result) const {
  if (directory_.empty() || result.size() > kMaxResultBytes || result.size() > max_bytes_ / 4) return false;
  if (const Status made = MakePrivateDirectories(directory_); !made.ok()) {
    SayOnce(made.message());
    return false;
  }
  if (!IsOurs()) return false;
  std::string beside = directory_ + "/.new-XXXXXX";
  const UniqueFd file(::mkostemp(beside.data(), O_CLOEXEC));
  if (!file.valid()) {
    SayOnce(std::strerror(errno));
    return false;
  }
  const Header header{kMagic, key.source_bytes, result.size(), XXH3_64bits(result.data(), result.size())};
  const bool is_kept = WriteAll(file.get(), &header, sizeof(header)) &&
                       WriteAll(file.get(), result.data(), result.size()) &&
                       ::rename(beside.c_str(), PathOf(key).c_str()) == 0;
  if (!is_kept) {
    SayOnce(std::strerror(errno));
    ::unlink(beside.c_str());
  }
  // A look at the whole directory, now and then only.
  if (is_kept && key.digest[0] % 16 == 0) Shrink();
  return is_kept;
}

bool FileCache::IsOurs() const {
  if (is_ours_.load(std::memory_order_relaxed)) return true;
  const Status checked = CheckPrivatePath(directory_);
  if (!checked.ok()) SayOnce(checked.message());
  is_ours_.store(checked.ok(), std::memory_order_relaxed);
  return checked.ok();
}

void FileCache::SayOnce(const std::string& why) const {
  if (has_said_so_.exchange(true)) return;
  LOG_WARNING(
      "cannot keep what was compiled in '{}' ({}), so it is compiled again each time: make room, or choose "
      "another directory (tallyd --cache-directory)",
      directory_, why);
}

void FileCache::Shrink() const {
  struct File {
    fs::file_time_type used;
    uint64_t size_bytes;
    fs::path path;
  };
  std::vector<File> files;
  uint64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator at(directory_, error), end; !error && at != end; at.increment(error)) {
    File file{at->last_write_time(error), at->file_size(error), at->path()};
    if (error) {  // somebody else removed it
      error.clear();
      continue;
    }
    total += file.size_bytes;
    files.push_back(std::move(file));
  }
  if (total <= max_bytes_) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (total <= max_bytes_ / 4 * 3) break;
    if (fs::remove(file.path, error)) total -= file.size_bytes;
  }
}

}  // namespace tally
