// A clock for tests of several threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace tally {

// Stands still until told to move: on it nothing is waited for too long, however busy the machine is. Thread-safe.
class StillClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(std::chrono::nanoseconds(now_ns_.load())); }
  void Advance(std::chrono::nanoseconds by) { now_ns_ += by.count(); }

 private:
  std::atomic<int64_t> now_ns_{0};
};

}  // namespace tally
