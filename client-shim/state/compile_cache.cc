#include "client-shim/state/compile_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/unique_fd.h"

namespace tally::client_shim {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kDefaultMaxBytes = uint64_t{1} << 30;  // as NVIDIA's driver
constexpr uint64_t kMaxResultBytes = uint64_t{256} << 20;
constexpr uint64_t kMagic = 0x31'6568'6361'4354;  // "TCache1"

struct Header {
  uint64_t magic = kMagic;
  uint64_t source_bytes = 0;
  uint64_t result_bytes = 0;
  uint64_t checksum = 0;
};

// Every field after its length, so that no two inputs run together into the same bytes.
void Add(XXH3_state_t* state, const void* bytes, uint64_t size_bytes) {
  XXH3_128bits_update(state, &size_bytes, sizeof(size_bytes));
  XXH3_128bits_update(state, bytes, size_bytes);
}

XXH128_hash_t DigestOf(const CompileCache::Input& input, uint64_t seed) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_128bits_reset_withSeed(&state, seed);
  const int32_t numbers[] = {input.kind, input.architecture, input.flags};
  Add(&state, numbers, sizeof(numbers));
  Add(&state, input.source.data(), input.source.size());
  for (const std::string_view text : {input.options, input.platform, input.compiler_build})
    Add(&state, text.data(), text.size());
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

const char* Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

CompileCache::Key CompileCache::KeyOf(const Input& input) {
  const XXH128_hash_t first = DigestOf(input, 0), second = DigestOf(input, 0x74616c6c79);
  return {{first.high64, first.low64, second.high64, second.low64}, input.source.size()};
}

CompileCache CompileCache::OfEnvironment() {
  const std::string_view disabled = Environment("CUDA_CACHE_DISABLE");
  if (!disabled.empty() && disabled != "0") return {"", 0};
  const uint64_t bound = std::strtoull(Environment("CUDA_CACHE_MAXSIZE"), nullptr, 10);
  const uint64_t max_bytes = bound != 0 ? bound : kDefaultMaxBytes;
  if (const std::string_view path = Environment("CUDA_CACHE_PATH"); !path.empty())
    return {fmt::format("{}/tally-compiled", path), max_bytes};
  if (const std::string_view path = Environment("XDG_CACHE_HOME"); !path.empty())
    return {fmt::format("{}/tally/compiled", path), max_bytes};
  if (const std::string_view path = Environment("HOME"); !path.empty())
    return {fmt::format("{}/.cache/tally/compiled", path), max_bytes};
  return {"", 0};
}

std::string CompileCache::PathOf(const Key& key) const {
  return fmt::format("{}/{:016x}{:016x}{:016x}{:016x}", directory_, key.digest[0], key.digest[1], key.digest[2],
                     key.digest[3]);
}

std::optional<CompileCache::Result> CompileCache::Find(const Key& key) const {
  if (directory_.empty()) return std::nullopt;
  const UniqueFd file(::open(PathOf(key).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  Header header;
  struct stat found {};
  if (!ReadAll(file.get(), &header, sizeof(header)) || ::fstat(file.get(), &found) != 0) return std::nullopt;
  if (header.magic != kMagic || header.source_bytes != key.source_bytes || header.result_bytes > kMaxResultBytes ||
      static_cast<uint64_t>(found.st_size) != sizeof(header) + header.result_bytes)
    return std::nullopt;
  Result result;
  result.size_bytes = header.result_bytes;
  result.bytes.reset(static_cast<std::byte*>(std::malloc(std::max<size_t>(1, result.size_bytes))));
  if (result.bytes == nullptr || !ReadAll(file.get(), result.bytes.get(), result.size_bytes)) return std::nullopt;
  if (XXH3_64bits(result.bytes.get(), result.size_bytes) != header.checksum) return std::nullopt;
  ::futimens(file.get(), nullptr);  // used now: Shrink() takes others first
  return result;
}

bool CompileCache::Keep(const Key& key, std::span<const std::byte> result) const {
  if (directory_.empty() || result.size() > kMaxResultBytes || result.size() > max_bytes_ / 4) return false;
  std::error_code error;
  fs::create_directories(directory_, error);
  std::string beside = directory_ + "/.new-XXXXXX";
  const UniqueFd file(::mkostemp(beside.data(), O_CLOEXEC));
  if (!file.valid()) return false;
  const Header header{kMagic, key.source_bytes, result.size(), XXH3_64bits(result.data(), result.size())};
  const bool is_kept = WriteAll(file.get(), &header, sizeof(header)) &&
                       WriteAll(file.get(), result.data(), result.size()) &&
                       ::rename(beside.c_str(), PathOf(key).c_str()) == 0;
  if (!is_kept) ::unlink(beside.c_str());
  // A look at the whole directory, now and then only.
  if (is_kept && key.digest[0] % 16 == 0) Shrink();
  return is_kept;
}

void CompileCache::Shrink() const {
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

}  // namespace tally::client_shim
