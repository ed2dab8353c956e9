// Suspends this executor's channel groups while high-priority work keeps coming.
//
// High-priority work comes in *stretches*: requests one after another, kernels of a request, and between them moments
// in which nothing of it is on the GPU. In each of those the GPU turns to the next context that has work, and the
// kernel that comes next pays for a switch (0.15 to 0.28 ms on an H200). With the groups of best-effort contexts
// suspended (channel_groups.h) there is nobody to turn to: only the first kernel of a stretch pays.
//
//      high-priority   ##  ### ##       #### ##   ###
//      suspended           |--------------------------hold-off--|
//      best-effort     ....                                      .......
//
// Suspending takes about a millisecond and going on a third of one, which only best-effort work loses; when either is
// worth it says scheduler/suspension_rule.h. On a thread of its own, which sleeps while nothing of high priority
// happens.
//
// Should somebody wait for long for what was suspended, although nothing keeps it back, it is suspended and let go on
// once more.
//
// An executor that runs high-priority work itself does not suspend itself. One for each device.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "scheduler/suspension_rule.h"

namespace tally::server {

class HighPriorityWatch;

class Suspender {
 public:
  // Suspends (true) or lets go on (false); how many groups are suspended then.
  using Suspend = std::function<size_t(bool)>;

  // `watch` outlives this.
  Suspender(HighPriorityWatch& watch, int device, Suspend suspend);
  // Everything goes on.
  ~Suspender();
  Suspender(const Suspender&) = delete;
  Suspender& operator=(const Suspender&) = delete;

  // False: no thread could be started. Nothing is ever suspended then.
  bool is_running() const { return thread_.joinable(); }
  // Off until then. From any thread.
  void Enable(bool is_enabled) { is_enabled_.store(is_enabled); }

  uint64_t num_suspensions() const { return num_suspensions_.load(std::memory_order_relaxed); }
  uint64_t num_standstills() const { return num_standstills_.load(std::memory_order_relaxed); }

 private:
  void Run();
  bool MaySuspend();
  // From the beginning of a stretch to its end, suspended or not: until no more has come for as long as the rule says.
  struct Stretch {
    TimePoint end;
    bool is_suspended = false;
  };
  Stretch Follow(TimePoint since);
  void GoOn();
  void StirUp();

  HighPriorityWatch& watch_;
  const int device_;
  const Suspend suspend_;
  const SteadyClock clock_;
  std::atomic<bool> is_enabled_{false};
  std::atomic<bool> is_stopping_{false};
  std::atomic<uint64_t> num_suspensions_{0};
  std::atomic<uint64_t> num_standstills_{0};
  scheduler::SuspensionRule rule_;  // the thread's
  std::thread thread_;
};

}  // namespace tally::server
