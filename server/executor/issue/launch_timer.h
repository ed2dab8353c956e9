// How long launches take on one device, from events around them: nobody waits for the answer.
//
// Times that were disturbed by high-priority work are thrown away. Thread-safe; the device's context must be current.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "server/executor/dispatch/high_priority_watch.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {

class LaunchTimer {
 public:
  using OnDuration = std::function<void(std::chrono::nanoseconds)>;

  // `watch` may be null. Both outlive this.
  LaunchTimer(const DriverTable& driver, int device, HighPriorityWatch* watch)
      : driver_(driver), device_(device), watch_(watch) {}
  // The context must be current.
  ~LaunchTimer();
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

  // A time being taken. Destroyed without End, it comes to nothing.
  class Timing {
   public:
    Timing(Timing&& other) noexcept : timer_(other.timer_), phase_(other.phase_) {
      begin_ = std::exchange(other.begin_, nullptr);
    }
    Timing& operator=(Timing&&) = delete;
    ~Timing();
    // Everything that counts has been put on the stream. `on_duration` is called from a later Collect, on any thread.
    void End(CUstream stream, OnDuration on_duration);

   private:
    friend class LaunchTimer;
    Timing(LaunchTimer& timer, CUevent begin, uint32_t phase) : timer_(timer), begin_(begin), phase_(phase) {}
    LaunchTimer& timer_;
    CUevent begin_;
    uint32_t phase_;
  };
  // None: too many are being taken, or high-priority work runs.
  std::optional<Timing> Begin(CUstream stream);

  // Reports what has ended. Cheap when nothing is pending: to be called at each launch.
  void Collect();

 private:
  struct Pending {
    CUevent begin = nullptr;
    CUevent end = nullptr;
    uint32_t phase = 0;
    OnDuration on_duration;
  };
  CUevent AcquireLocked();
  void ReleaseEvent(CUevent event);

  const DriverTable& driver_;
  const int device_;
  HighPriorityWatch* const watch_;
  std::atomic<bool> is_any_pending_{false};
  std::mutex mutex_;
  std::deque<Pending> pending_;  // guarded by mutex_, as below
  std::vector<CUevent> free_;
};

}  // namespace tally::server
