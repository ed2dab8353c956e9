#include "sim-driver/api/worker_pool.h"

#include "sim-driver/engine/driver_thread.h"

namespace tally::sim_driver {

void WorkerPool::Enqueue(int priority, std::function<void()> job) {
  std::unique_lock lock(mutex_);
  queue_.emplace(std::pair(priority, arrivals_++), std::move(job));
  if (num_idle_ >= static_cast<int>(queue_.size()) || num_threads_ == max_threads_) {
    wanted_.notify_one();
    return;
  }
  if (!StartThreadLocked()) wanted_.notify_one();
}

bool WorkerPool::Open() {
  const std::unique_lock lock(mutex_);
  return num_threads_ > 0 || StartThreadLocked();
}

bool WorkerPool::StartThreadLocked() {
  auto thread = StartDriverThread(name_, [this] { Loop(); });
  if (!thread) return false;
  thread->detach();
  ++num_threads_;
  return true;
}

void WorkerPool::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++num_idle_;
    wanted_.wait(lock, [this] { return !queue_.empty(); });
    --num_idle_;
    auto job = std::move(queue_.begin()->second);
    queue_.erase(queue_.begin());
    lock.unlock();
    job();
    job = nullptr;  // frees what it holds before sleeping
    lock.lock();
  }
}

}  // namespace tally::sim_driver
