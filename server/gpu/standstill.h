// Tells whoever suspends best-effort work of a wait that takes long: should something of what was suspended not have
// gone on, to be suspended and let go on once more helps. A wait that is long for good reasons loses 2 ms a second by
// that.
//
// For one wait of one thread.
#pragma once

#include <algorithm>
#include <chrono>

#include "server/gpu/high_priority_watch.h"

namespace tally::server {

class Standstill {
 public:
  // `watch` may be null: nobody suspends anything.
  Standstill(HighPriorityWatch* watch, int device) : watch_(watch), device_(device) {}

  // Again and again, as long as it lasts; `waited`: since it began.
  void OnWaiting(std::chrono::nanoseconds waited) {
    if (watch_ == nullptr || waited < next_) return;
    next_ = waited + std::min<std::chrono::nanoseconds>(waited, std::chrono::seconds(1));
    watch_->OnStandstill(device_);
  }

 private:
  HighPriorityWatch* const watch_;
  const int device_;
  std::chrono::nanoseconds next_ = std::chrono::milliseconds(250);
};

}  // namespace tally::server
