#include "sim-driver/api/worker_pool.h"

#include <pthread.h>
#include <signal.h>

#include <thread>

namespace tally::sim_driver {

void WorkerPool::Enqueue(int priority, std::function<void()> job) {
  std::unique_lock lock(mutex_);
  queue_.emplace(std::pair(priority, arrivals_++), std::move(job));
  if (num_idle_ >= static_cast<int>(queue_.size()) || num_threads_ == max_threads_) {
    wanted_.notify_one();
    return;
  }
  ++num_threads_;
  // The program's signals are for its own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this] { Loop(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void WorkerPool::Loop() {
  pthread_setname_np(pthread_self(), name_);
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
