// A session's latency objective: what its requests take, and how careful that says to be with best-effort work.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "scheduler/slo_feedback.h"
#include "scheduler/tuning.h"

namespace tally::server {

class SloWatch {
 public:
  // `on_throttle_level` is called, without a lock, whenever another throttle level is asked for: once per window at
  // most.
  SloWatch(const scheduler::Slo& slo, std::function<void()> on_throttle_level)
      : on_throttle_level_(std::move(on_throttle_level)), feedback_({.slo = slo}) {}

  void OnRequest(std::chrono::nanoseconds took) {
    bool has_changed = false;
    {
      const std::lock_guard lock(mutex_);
      ++num_requests_;
      has_changed = feedback_.OnLatency(took);
    }
    if (has_changed) on_throttle_level_();
  }

  // The times that are in force. Told once more unchanged, tenants have come, changed or gone somewhere on the machine
  // (LinkSetTuning): what was learned of them counts no more.
  void OnTuning(const scheduler::Tuning& tuning) {
    const std::lock_guard lock(mutex_);
    if (told_ == tuning) feedback_.OnTenantsChanged();
    told_ = tuning;
  }

  struct Figures {
    uint64_t num_requests = 0;
    std::chrono::nanoseconds observed{0};  // at the objective's percentile, in the last window
    int throttle_level = 0;                // steps
  };
  Figures figures() const {
    const std::lock_guard lock(mutex_);
    return {num_requests_, feedback_.last_quantile(), feedback_.throttle_steps()};
  }

 private:
  const std::function<void()> on_throttle_level_;
  mutable std::mutex mutex_;
  scheduler::SloFeedback feedback_;  // guarded by mutex_, as below
  uint64_t num_requests_ = 0;
  std::optional<scheduler::Tuning> told_;
};

}  // namespace tally::server
