#include "server/executor/session/truncation_guard.h"

#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <mutex>

namespace tally::server {
namespace {

constexpr uint64_t kPageBytes = 4096;

// Written under the mutex, read by the handler: begin last, so that a range is complete once it is seen.
struct Range {
  std::atomic<uint64_t> begin{0};  // 0: free
  std::atomic<uint64_t> end{0};
  std::atomic<bool> was_truncated{false};
};
constinit Range g_ranges[TruncationGuard::kMaxRanges];
constinit std::atomic<int> g_num_used{0};  // slots that were ever used: how far the handler looks
constinit std::atomic<uint64_t> g_num_truncations{0};
constinit std::mutex g_mutex;
constinit bool g_is_installed = false;
struct sigaction g_before;

Range* FindRange(uint64_t address) {
  const int count = g_num_used.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    const uint64_t begin = g_ranges[i].begin.load(std::memory_order_acquire);
    if (begin != 0 && address >= begin && address < g_ranges[i].end.load(std::memory_order_relaxed)) {
      return &g_ranges[i];
    }
  }
  return nullptr;
}

void OnBusError(int signal_number, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  void* page = reinterpret_cast<void*>(address / kPageBytes * kPageBytes);
  Range* range = info->si_code > 0 ? FindRange(address) : nullptr;
  if (range != nullptr &&
      ::mmap(page, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page) {
    range->was_truncated.store(true, std::memory_order_relaxed);
    g_num_truncations.fetch_add(1, std::memory_order_release);
    return;
  }
  ::sigaction(signal_number, &g_before, nullptr);  // the access is repeated, and ends as it would have
}

}  // namespace

bool TruncationGuard::Cover(uint64_t address, uint64_t size_bytes) {
  const std::lock_guard lock(g_mutex);
  if (!g_is_installed) {
    struct sigaction action {};
    action.sa_sigaction = &OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    if (::sigaction(SIGBUS, &action, &g_before) != 0) return false;
    g_is_installed = true;
  }
  for (int i = 0; i < kMaxRanges; ++i) {
    Range& range = g_ranges[i];
    if (range.begin.load(std::memory_order_relaxed) != 0) continue;
    range.was_truncated.store(false, std::memory_order_relaxed);
    range.end.store(address + size_bytes, std::memory_order_relaxed);
    range.begin.store(address, std::memory_order_release);
    if (i >= g_num_used.load(std::memory_order_relaxed)) g_num_used.store(i + 1, std::memory_order_release);
    return true;
  }
  return false;
}

void TruncationGuard::Uncover(uint64_t address) {
  const std::lock_guard lock(g_mutex);
  const int count = g_num_used.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    uint64_t begin = address;
    if (g_ranges[i].begin.compare_exchange_strong(begin, 0)) return;
  }
}

uint64_t TruncationGuard::NumTruncations() { return g_num_truncations.load(std::memory_order_acquire); }

bool TruncationGuard::WasTruncated(uint64_t address) {
  const std::lock_guard lock(g_mutex);
  const int count = g_num_used.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    if (g_ranges[i].begin.load(std::memory_order_relaxed) == address) {
      return g_ranges[i].was_truncated.load(std::memory_order_relaxed);
    }
  }
  return false;
}

}  // namespace tally::server
