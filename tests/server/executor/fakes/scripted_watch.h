// High-priority work that comes and goes as a test says.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "server/executor/dispatch/high_priority_watch.h"

namespace tally::server {

class ScriptedWatch : public HighPriorityWatch {
 public:
  void SetClosed(bool is_closed) {
    {
      const std::lock_guard lock(mutex_);
      if (is_closed && !is_closed_) {
        ++phase_;
        closed_since_ = SteadyClock().Now();
      }
      if (!is_closed) open_since_ = SteadyClock().Now();
      is_closed_ = is_closed;
    }
    changed_.notify_all();
  }

  bool IsClosed(int) override {
    const std::lock_guard lock(mutex_);
    return is_closed_;
  }
  bool IsHighPriorityPresent() override { return true; }
  bool IsOneOfThem() override { return ++num_looks, is_one_of_them.load(); }
  TimePoint OpenSince(int) override {
    const std::lock_guard lock(mutex_);
    return open_since_;
  }
  TimePoint ClosedSince(int) override {
    const std::lock_guard lock(mutex_);
    return closed_since_;
  }
  void WaitWhileOpen(int, std::chrono::nanoseconds timeout) override { Wait(true, timeout); }
  void WaitWhileClosed(int, std::chrono::nanoseconds timeout) override { Wait(false, timeout); }
  std::optional<uint32_t> QuietPhase(int) override {
    const std::lock_guard lock(mutex_);
    return is_closed_ ? std::nullopt : std::optional(phase_);
  }
  void OnStandstill(int) override { ++num_standstills; }
  uint64_t NumStandstills(int) override { return num_standstills; }

  std::atomic<bool> is_one_of_them{false};
  std::atomic<uint64_t> num_looks{0};  // whether it is one of them
  std::atomic<uint64_t> num_standstills{0};

 private:
  void Wait(bool is_closed, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return is_closed_ == is_closed; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  TimePoint closed_since_{}, open_since_{};
  uint32_t phase_ = 0;
};

}  // namespace tally::server
