// High-priority work that comes and goes on one device as a test says. On others there is none.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "server/executor/dispatch/high_priority_watch.h"

namespace tally::server {

class ScriptedWatch : public HighPriorityWatch {
 public:
  explicit ScriptedWatch(int device = 0) : device_(device) {}

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

  bool IsClosed(int device) override {
    const std::lock_guard lock(mutex_);
    return is_closed_ && device == device_;
  }
  bool IsHighPriorityPresent(int device) override { return device == device_; }
  bool IsOneOfThem(int device) override { return ++num_looks, device == device_ && is_one_of_them.load(); }
  TimePoint OpenSince(int) override {
    const std::lock_guard lock(mutex_);
    return open_since_;
  }
  TimePoint ClosedSince(int) override {
    const std::lock_guard lock(mutex_);
    return closed_since_;
  }
  void WaitWhileOpen(int device, std::chrono::nanoseconds timeout) override {
    Wait([&] { return is_closed_ && device == device_; }, timeout);
  }
  void WaitWhileClosed(int device, std::chrono::nanoseconds timeout) override {
    Wait([&] { return !is_closed_ || device != device_; }, timeout);
  }
  std::optional<uint32_t> QuietPhase(int device) override {
    const std::lock_guard lock(mutex_);
    if (device != device_) return 0;
    return is_closed_ ? std::nullopt : std::optional(phase_);
  }
  void OnStandstill(int device) override { num_standstills += device == device_ ? 1 : 0; }
  uint64_t NumStandstills(int device) override { return device == device_ ? num_standstills.load() : 0; }

  std::atomic<bool> is_one_of_them{false};
  std::atomic<uint64_t> num_looks{0};  // whether it is one of them
  std::atomic<uint64_t> num_standstills{0};

 private:
  template <typename Condition>
  void Wait(const Condition& condition, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, condition);
  }

  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  TimePoint closed_since_{}, open_since_{};
  uint32_t phase_ = 0;
};

}  // namespace tally::server
