// What the notices of all sessions of an executor have in common (expected_work.h).
#pragma once

#include <atomic>
#include <mutex>

#include "scheduler/notice_budget.h"

namespace tally::server {

// Thread-safe.
struct Notices {
  // Whether the GPU's time slices put this executor before best-effort ones at present.
  std::atomic<bool> are_of_use{false};
  std::mutex mutex;
  scheduler::NoticeBudget budget;  // guarded by mutex
};

}  // namespace tally::server
