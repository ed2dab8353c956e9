// Monotonic time, injected where decisions depend on it, so that tests own time.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

namespace tally {

// All times are of CLOCK_MONOTONIC; system time is never used for decisions.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, std::chrono::nanoseconds>;

// For what is written into memory or messages that other processes read. Allocates nothing, needs no C++ library.
inline uint64_t MonotonicNs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

// The real clock. Thread-safe.
class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override {
    return std::chrono::time_point_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now());
  }
};

// A clock that stands still until told to move. Not thread-safe.
class ManualClock final : public Clock {
 public:
  TimePoint Now() const override { return now_; }
  void Advance(std::chrono::nanoseconds by) { now_ += by; }

 private:
  TimePoint now_{};
};

}  // namespace tally
