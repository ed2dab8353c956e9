// Threads that run queued jobs, most urgent first, first come first served within one priority.
//
// Threads are made when a job finds none idle, up to a bound and to what the machine has left, and then kept asleep.
// Thread-safe. Never destroyed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

namespace tally::sim_driver {

class WorkerPool {
 public:
  // `name` appears in /proc/PID/task/*/comm (15 characters at most).
  WorkerPool(const char* name, int max_threads) : name_(name), max_threads_(max_threads) {}

  // Its first thread, so that what is queued gets done whatever happens to the others. False: there is none.
  bool Open();
  // Smaller `priority` first.
  void Enqueue(int priority, std::function<void()> job);

 private:
  bool StartThreadLocked();
  void Loop();

  const char* const name_;
  const int max_threads_;
  std::mutex mutex_;
  std::condition_variable wanted_;
  std::map<std::pair<int, uint64_t>, std::function<void()>> queue_;  // (priority, arrival)
  uint64_t arrivals_ = 0;
  int num_threads_ = 0;
  int num_idle_ = 0;
};

}  // namespace tally::sim_driver
