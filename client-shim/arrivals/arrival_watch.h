// What the preloaded library does after a receive: asks the learner and tells the executor. One per process.
//
// Usable from any thread and from signal handlers: takes no lock that somebody waits for. Who finds another thread, or
// the code that the signal has interrupted, at it goes on without.
#pragma once

#include <atomic>
#include <cstdint>

#include "client-shim/arrivals/arrival_learner.h"
#include "proto/shm/arrival_abi.h"

namespace tally::client_shim {

class ArrivalWatch {
 public:
  // The page of this process's session; null: there is none any more (a fork's child).
  void Attach(shm::ArrivalPage* page) { page_.store(page, std::memory_order_release); }
  // One load.
  bool is_attached() const { return page_.load(std::memory_order_relaxed) != nullptr; }
  // Something was received at `site`. Changes errno.
  void OnReceived(uint64_t site);

 private:
  void LearnFrom(const shm::ArrivalPage& page);

  std::atomic<shm::ArrivalPage*> page_{nullptr};
  std::atomic<bool> is_in_use_{false};
  ArrivalLearner learner_;       // guarded by is_in_use_, as is the next
  uint64_t num_begun_seen_ = 0;  // of the page
};

// Wakes whoever sleeps on the page's bell, if anybody does.
void RingBell(shm::ArrivalPage& page);

}  // namespace tally::client_shim
