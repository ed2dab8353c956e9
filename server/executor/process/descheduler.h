// Deschedules this executor's GPU channel groups while high-priority work keeps coming.
//
// High-priority work comes in *busy periods*: requests one after another, kernels of a request, and between them
// moments in which nothing of it is on the GPU. In each of those the GPU turns to the next context that has work, and
// the kernel that comes next pays for a switch (0.15 to 0.28 ms on an H200). With the groups of best-effort contexts
// descheduled (gpu_channel_groups.h) there is nobody to turn to: only the first kernel of a busy period pays.
//
//      high-priority   ##  ### ##       #### ##   ###
//      descheduled         |--------------------------hold-off--|
//      best-effort     ....                                      .......
//
// Descheduling takes about a millisecond and going on a third of one, which only best-effort work loses; when either is
// worth it says scheduler/descheduling_rule.h. On a thread of its own, which sleeps while nothing of high priority
// happens.
//
// Should somebody wait for long for what was descheduled, although nothing keeps it back, it is descheduled and let go
// on once more.
//
// An executor that runs high-priority work on the device itself does not deschedule itself there. One for each device.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "scheduler/descheduling_rule.h"

namespace tally::server {

class HighPriorityWatch;

class Descheduler {
 public:
  // Deschedules (true) or lets go on (false); how many groups are descheduled then.
  using Deschedule = std::function<size_t(bool)>;

  // `watch` outlives this.
  Descheduler(HighPriorityWatch& watch, int device, Deschedule deschedule);
  // Everything goes on.
  ~Descheduler();
  Descheduler(const Descheduler&) = delete;
  Descheduler& operator=(const Descheduler&) = delete;

  // False: no thread could be started. Nothing is ever descheduled then.
  bool is_running() const { return thread_.joinable(); }
  // Off until then. From any thread.
  void Enable(bool is_enabled) { is_enabled_.store(is_enabled); }

  uint64_t num_deschedulings() const { return num_deschedulings_.load(std::memory_order_relaxed); }
  uint64_t num_standstills() const { return num_standstills_.load(std::memory_order_relaxed); }

 private:
  void Run();
  bool MayDeschedule();
  // From the beginning of a busy period to its end, descheduled or not: until no more has come for as long as the rule
  // says.
  struct BusyPeriod {
    TimePoint end;
    bool is_descheduled = false;
  };
  BusyPeriod Follow(TimePoint since);
  void GoOn();
  void StirUp();

  HighPriorityWatch& watch_;
  const int device_;
  const Deschedule deschedule_;
  const SteadyClock clock_;
  std::atomic<bool> is_enabled_{false};
  std::atomic<bool> is_stopping_{false};
  std::atomic<uint64_t> num_deschedulings_{0};
  std::atomic<uint64_t> num_standstills_{0};
  scheduler::DeschedulingRule rule_;  // the thread's
  std::thread thread_;
};

}  // namespace tally::server
