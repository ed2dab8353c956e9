// Tells whoever deschedules best-effort work of a wait that takes long: should something of what was descheduled not
// have gone on, to be descheduled and let go on once more helps. A wait that is long for good reasons loses 2 ms a
// second by that.
//
// For one wait of one thread.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "server/executor/dispatch/high_priority_watch.h"

namespace tally::server {

class Standstill {
 public:
  // `watch` may be null: nobody deschedules anything. `since`: when the wait began.
  Standstill(HighPriorityWatch* watch, int device, TimePoint since) : watch_(watch), device_(device), since_(since) {}

  // Again and again, as long as it lasts.
  void OnWaiting(TimePoint now) {
    if (watch_ == nullptr || now < next_) return;
    next_ = now + std::min<TimePoint::duration>(now - since_, std::chrono::seconds(1));
    watch_->OnStandstill(device_);
  }

 private:
  HighPriorityWatch* watch_;
  int device_;
  TimePoint since_;
  TimePoint next_ = since_ + std::chrono::milliseconds(250);
};

}  // namespace tally::server
