#include "client-shim/arrivals/arrival_watch.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"

namespace tally::client_shim {

void RingBell(shm::ArrivalPage& page) {
  page.bell.fetch_add(1, std::memory_order_seq_cst);
  if (page.is_awaited.load(std::memory_order_seq_cst) != 0) ::syscall(SYS_futex, &page.bell, FUTEX_WAKE, 1, nullptr);
}

void ArrivalWatch::LearnFrom(const shm::ArrivalPage& page) {
  const uint64_t num_begun = page.num_begun.load(std::memory_order_acquire);
  if (num_begun == num_begun_seen_) return;
  const uint64_t num_missed = std::min<uint64_t>(num_begun - num_begun_seen_, shm::kArrivalTimes);
  for (uint64_t i = num_begun - num_missed; i != num_begun; ++i) {
    learner_.OnWorkBegun(page.begun_at_ns[i % shm::kArrivalTimes].load(std::memory_order_relaxed));
  }
  num_begun_seen_ = num_begun;
}

void ArrivalWatch::OnReceived(uint64_t site) {
  shm::ArrivalPage* const page = page_.load(std::memory_order_acquire);
  if (page == nullptr || is_in_use_.exchange(true, std::memory_order_acquire)) return;
  LearnFrom(*page);
  // What comes while the GPU works for this program needs no notice, and teaches nothing about the next that does.
  if (page->is_busy.load(std::memory_order_relaxed) == 0) {
    if (const auto window = learner_.OnWake(site, MonotonicNs())) {
      page->expected_from_ns.store(window->from_ns, std::memory_order_relaxed);
      page->expected_until_ns.store(window->until_ns, std::memory_order_relaxed);
      RingBell(*page);
    }
  }
  is_in_use_.store(false, std::memory_order_release);
}

}  // namespace tally::client_shim
