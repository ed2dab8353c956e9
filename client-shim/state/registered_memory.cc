#include "client-shim/state/registered_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "base/futex.h"
#include "base/log.h"
#include "client-shim/state/own_mappings.h"
#include "client-shim/state/page_swap.h"

namespace tally::client_shim {
namespace {

// A child that was killed at once must not stop its parent for ever.
constexpr auto kCopyLimit = std::chrono::seconds(10);

}  // namespace

bool RegisteredMemory::Share(uint64_t begin, uint64_t size_bytes, int fd) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return false;
  // Entered first: nothing may need memory once the pages have been replaced.
  const auto entry = shared_.insert_or_assign(begin, Pages{size_bytes, file.st_dev, file.st_ino}).first;
  if (SwapForShared(begin, size_bytes, fd)) return true;
  shared_.erase(entry);
  return false;
}

void RegisteredMemory::AppendParts(uint64_t begin, const Pages& pages, std::vector<Part>* parts) const {
  const uint64_t end = begin + pages.size_bytes;
  for (const Mapping& mapping : MappingsWithin(begin, end)) {
    if (!mapping.is_shared || mapping.device != pages.device || mapping.inode != pages.inode || !mapping.is_writable)
      continue;
    const uint64_t from = std::max(begin, mapping.begin);
    parts->push_back({from, std::min(end, mapping.end) - from});
  }
}

void RegisteredMemory::GiveBack(uint64_t begin) {
  const auto found = shared_.find(begin);
  if (found == shared_.end()) return;
  std::vector<Part> parts;
  AppendParts(begin, found->second, &parts);
  shared_.erase(found);
  for (const Part& part : parts) {
    if (!SwapForPrivate(part.begin, part.size_bytes))
      LOG_WARNING("unregistered memory at {:#x} stays shared with children: no memory for private pages", part.begin);
  }
}

void RegisteredMemory::BeforeFork() {
  mutex_.lock();
  fork_parts_.clear();
  for (const auto& [begin, pages] : shared_) AppendParts(begin, pages, &fork_parts_);
  if (fork_parts_.empty()) return;
  void* word = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (word != MAP_FAILED) is_copied_ = new (word) std::atomic<uint32_t>(0);
}

void RegisteredMemory::AfterForkInChild() {
  for (const Part& part : fork_parts_) SwapForPrivateAlone(part.begin, part.size_bytes);
  if (is_copied_ == nullptr) return;
  is_copied_->store(1, std::memory_order_release);
  FutexWake(*is_copied_, 1);
  ::munmap(is_copied_, kPageBytes);
}

void RegisteredMemory::AfterForkInParent() {
  if (is_copied_ != nullptr) {
    const auto deadline = std::chrono::steady_clock::now() + kCopyLimit;
    while (is_copied_->load(std::memory_order_acquire) == 0) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= left.zero() || !FutexWait(*is_copied_, 0, left)) break;
    }
    ::munmap(is_copied_, kPageBytes);
    is_copied_ = nullptr;
  }
  mutex_.unlock();
}

}  // namespace tally::client_shim
