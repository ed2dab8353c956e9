// How much GPU time one best-effort session has had, by what could have taken the GPU from it. Nobody waits for a
// time: a launch counts with what is known about its kind, and as soon as something is.
//
// Figures() is thread-safe; all else is guarded by the session's sequencer.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>

#include "proto/control/preemptibility.h"
#include "server/executor/dispatch/admission.h"
#include "server/executor/dispatch/launch_costs.h"
#include "server/executor/driver/devices.h"

namespace tally::server {

using control::Preemptibility;

using TimesByPreemptibility = std::array<std::chrono::nanoseconds, control::kNumPreemptibilities>;

class PreemptibilityMeter {
 public:
  // `watch` may be null: then nothing is timed here, and `devices` may be null, too. Both outlive this.
  PreemptibilityMeter(Devices* devices, HighPriorityWatch* watch) : devices_(devices), watch_(watch) {}

  // A launch was made. `kind`: launches with the same take about the same time (LaunchAsked::kind). `duration` zero:
  // not known yet.
  void Count(uint64_t kind, Preemptibility preemptibility, std::chrono::nanoseconds duration);

  // The same for a launch that nobody else times: made before it, gone after it. What it waits for in between on the
  // host is no part of it if `Begin` is called later.
  class Timed {
   public:
    Timed(PreemptibilityMeter& meter, int device, CUstream stream, uint64_t kind, Preemptibility preemptibility);
    ~Timed();
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;
    // Of launches of the kind before this one; zero: nothing is known.
    std::chrono::nanoseconds known_duration() const {
      return cost_ != nullptr ? cost_->duration() : std::chrono::nanoseconds(0);
    }

   private:
    PreemptibilityMeter& meter_;
    LaunchCosts* costs_ = nullptr;
    LaunchCosts::Cost* cost_ = nullptr;
    uint32_t sample_ = LaunchCosts::kNone;
    const CUstream stream_;
    const uint64_t kind_;
    const Preemptibility preemptibility_;
  };

  TimesByPreemptibility Figures() const;
  // Gives its marks back.
  void Close() { costs_.clear(); }

 private:
  static constexpr size_t kMostUnknown = 4096;
  using Launches = std::array<uint32_t, control::kNumPreemptibilities>;

  void Add(Preemptibility preemptibility, std::chrono::nanoseconds duration, uint64_t num_launches);

  Devices* const devices_;
  HighPriorityWatch* const watch_;
  std::array<std::atomic<int64_t>, control::kNumPreemptibilities> times_ns_{};
  std::unordered_map<uint64_t, Launches> unknown_;     // launches of kinds whose time is not known yet
  std::map<int, std::unique_ptr<LaunchCosts>> costs_;  // by device
};

}  // namespace tally::server
