// Preempts the contexts of an executor that runs high-priority work, once in a while.
//
// A context gets into a state in which each of its kernels starts about 0.18 us later (an H200, driver 580; natively as
// well). Launches that wait in two streams at one time bring it about, as many programs have while they set things up.
// It lasts until the GPU turns to another context, which it never does if there is none, as for a service that is
// alone; a graph of short kernels then takes a tenth longer for good. The context's GPU channel group being taken off
// the GPU once ends it as well (docs/scheduling.md#refreshing says what was measured).
//
// That costs half a millisecond, so it is done in a pause of high-priority work, at most once in a while, and only if
// there was such work since. On a thread of its own. One for each device.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace tally::server {

class HighPriorityWatch;

class Refresher {
 public:
  struct Times {
    std::chrono::nanoseconds between = std::chrono::seconds(1);
    // Of the pause, until it is believed to be one. And how long one is looked for before the next look.
    std::chrono::nanoseconds pause = std::chrono::milliseconds(2);
    std::chrono::nanoseconds patience = std::chrono::milliseconds(200);
  };
  // Preempts them; how many there were.
  using Preempt = std::function<size_t()>;

  // `watch` outlives this.
  Refresher(HighPriorityWatch& watch, int device, Preempt preempt) : Refresher(watch, device, std::move(preempt), {}) {}
  Refresher(HighPriorityWatch& watch, int device, Preempt preempt, Times times);
  ~Refresher();
  Refresher(const Refresher&) = delete;
  Refresher& operator=(const Refresher&) = delete;

  uint64_t num_refreshes() const { return num_refreshes_.load(std::memory_order_relaxed); }

 private:
  void Run();
  // Whether there is a pause within the patience.
  bool WaitForPause();
  // False at the end.
  bool Sleep();

  HighPriorityWatch& watch_;
  const int device_;
  const Preempt preempt_;
  const Times times_;
  std::atomic<uint64_t> num_refreshes_{0};
  std::mutex mutex_;
  std::condition_variable stops_;
  bool is_stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace tally::server
