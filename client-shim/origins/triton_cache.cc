#include "client-shim/origins/triton_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "client-shim/origins/compile_steps.h"

namespace tally::client_shim {
namespace {

constexpr std::string_view kCubin = ".cubin";
constexpr size_t kMaxFolders = 65536;
constexpr size_t kMaxFilesInFolder = 256;
constexpr size_t kMaxSameSize = 64;
constexpr size_t kMaxCubinBytes = size_t{64} << 20;
constexpr size_t kMaxPtxBytes = size_t{64} << 20;
constexpr size_t kMaxDescriptionBytes = size_t{1} << 20;

const char* Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The whole file; nothing if it is no plain file, or larger.
std::optional<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  // A pipe of that name must not hold the program up.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat found {};
  if (!file.valid() || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_size < 0 ||
      static_cast<uint64_t>(found.st_size) > max_bytes) {
    return std::nullopt;
  }
  std::string content(static_cast<size_t>(found.st_size), '\0');
  for (size_t done = 0; done < content.size();) {
    const ssize_t size = ::read(file.get(), content.data() + done, content.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return std::nullopt;
    done += static_cast<size_t>(size);
  }
  return content;
}

// `base` is the path without an extension.
PtxText PtxOf(const std::string& base) {
  // Triton's description says that the two files belong together; a Makefile's may be of different days.
  const auto description = ReadFile(base + ".json", kMaxDescriptionBytes);
  if (!description || description->find("\"num_warps\"") == std::string::npos) return nullptr;
  const auto content = ReadFile(base + ".ptx", kMaxPtxBytes);
  PtxText ptx = content ? PtxTextOf(*content) : nullptr;
  // Without fusion Triton runs ptxas with --fmad=false.
  const bool fuses = description->find("\"enable_fp_fusion\": true") != std::string::npos &&
                     description->find("fmad") == std::string::npos;
  return ptx != nullptr && SaysItsResults(*ptx, !fuses) ? ptx : nullptr;
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

int64_t Nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

}  // namespace

std::string TritonCacheOfEnvironment() {
  if (const std::string path = Environment("TRITON_CACHE_DIR"); !path.empty()) return path;
  std::string home = Environment("TRITON_HOME");
  if (home.empty()) home = Environment("HOME");
  return home.empty() ? std::string() : home + "/.triton/cache";
}

PtxText PtxBesideCubin(const std::string& path) {
  return path.ends_with(kCubin) ? PtxOf(path.substr(0, path.size() - kCubin.size())) : nullptr;
}

PtxText TritonCache::Find(const std::string& root, std::span<const std::byte> cubin,
                          std::chrono::nanoseconds time_limit) {
  struct stat found {};
  if (root.empty() || cubin.size() > kMaxCubinBytes || ::stat(root.c_str(), &found) != 0 || !S_ISDIR(found.st_mode))
    return nullptr;
  const auto end = std::chrono::steady_clock::now() + time_limit;
  const auto has_time = [end] { return std::chrono::steady_clock::now() < end; };
  std::vector<std::string> candidates;
  {
    const std::lock_guard lock(mutex_);
    if (root != root_) {
      Forget();
      root_ = root;
    }
    if (Nanoseconds(found.st_mtim) != listed_at_ns_) {
      timespec now{};
      ::clock_gettime(CLOCK_REALTIME, &now);
      ListFolders();
      // Clocks of files are coarse: what comes within the same tick would not be noticed.
      const bool is_settled = Nanoseconds(now) - Nanoseconds(found.st_mtim) > 1'000'000'000;
      listed_at_ns_ = is_settled ? Nanoseconds(found.st_mtim) : 0;
    }
    // What was looked at before is looked at once, however many of them stay as they are.
    for (std::deque<std::string>* folders : {&without_cubin_, &unread_}) {
      for (size_t i = folders->size(); i > 0 && has_time(); --i) {
        std::string name = std::move(folders->front());
        folders->pop_front();
        if (!ReadFolder(name)) without_cubin_.push_back(std::move(name));
      }
    }
    const auto [first, last] = by_size_.equal_range(cubin.size());
    for (auto it = first; it != last && candidates.size() < kMaxSameSize; ++it) candidates.push_back(it->second);
  }
  for (const std::string& base : candidates) {
    const auto bytes = ReadFile(base + std::string(kCubin), cubin.size());
    if (!bytes || bytes->size() != cubin.size() || std::memcmp(bytes->data(), cubin.data(), cubin.size()) != 0)
      continue;
    if (PtxText ptx = PtxOf(base); ptx != nullptr) return ptx;
  }
  return nullptr;
}

void TritonCache::Forget() {
  listed_at_ns_ = 0;
  folders_.clear();
  unread_.clear();
  without_cubin_.clear();
  by_size_.clear();
}

void TritonCache::ListFolders() {
  const Directory directory(::opendir(root_.c_str()));
  if (directory == nullptr) return;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (folders_.size() >= kMaxFolders) return;
    if (entry->d_name[0] == '.' || (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN)) continue;
    const auto [name, is_new] = folders_.insert(entry->d_name);
    if (is_new) unread_.push_front(*name);
  }
}

bool TritonCache::ReadFolder(const std::string& name) {
  const std::string path = root_ + "/" + name;
  const Directory directory(::opendir(path.c_str()));
  if (directory == nullptr) return true;  // gone, or not for us
  bool has_cubin = false;
  for (size_t i = 0; i < kMaxFilesInFolder; ++i) {
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view file = entry->d_name;
    struct stat found {};
    if (!file.ends_with(kCubin) || ::fstatat(::dirfd(directory.get()), entry->d_name, &found, 0) != 0) continue;
    if (!S_ISREG(found.st_mode) || found.st_size <= 0) continue;
    by_size_.emplace(static_cast<uint64_t>(found.st_size),
                     path + "/" + std::string(file.substr(0, file.size() - kCubin.size())));
    has_cubin = true;
  }
  return has_cubin;
}

}  // namespace tally::client_shim
