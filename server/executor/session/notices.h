// What the notices of all sessions of an executor have in common (expected_work.h).
#pragma once

#include <atomic>
#include <mutex>

#include "scheduler/notice_budget.h"

namespace tally::server {

// Thread-safe.
struct Notices {
  // On which devices (bit n: ordinal n) the GPU's time slices put this executor before best-effort ones at present.
  std::atomic<uint64_t> devices{0};
  bool AreOfUseOn(int device) const { return (devices.load(std::memory_order_relaxed) >> device & 1) != 0; }
  std::mutex mutex;
  scheduler::NoticeBudget budget;  // guarded by mutex
};

}  // namespace tally::server
