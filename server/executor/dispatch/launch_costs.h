// How long the launches of one session take on one device, by kind, from times of some of them.
//
// Nobody waits for an answer: a sample is looked at when a later one begins. Of each kind the first few launches are
// timed and then every 16th, of long ones all. Times that high-priority work disturbed count only while nothing better
// is known. A table of fixed size: kinds that do not fit push out rarer ones.
//
// Of() and Begin() are for the holder of the session's sequencer; the rest is thread-safe. The device's context must be
// current.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "server/executor/dispatch/launch_timer.h"

namespace tally::server {

class LaunchCosts {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  static constexpr uint32_t kNone = LaunchTimer::kNone;

  class Cost {
   public:
    // Of one launch that has the GPU for itself; zero: not known yet.
    Nanoseconds duration() const { return Nanoseconds(duration_ns_.load(std::memory_order_relaxed)); }

   private:
    friend class LaunchCosts;
    void Learn(uint64_t key, Nanoseconds taken, bool was_quiet);

    std::atomic<uint64_t> key_{0};
    std::atomic<int64_t> duration_ns_{0};
    uint32_t num_launches_ = 0;
  };

  // Both outlive it.
  LaunchCosts(CompletionSource& completions, int device, HighPriorityWatch& watch)
      : costs_(std::make_unique<std::array<Cost, kNumCosts>>()), timer_(completions, device, &watch, kNumSamples) {}
  LaunchCosts(const LaunchCosts&) = delete;
  LaunchCosts& operator=(const LaunchCosts&) = delete;

  // Counts a launch of that kind.
  Cost& Of(uint64_t key);
  // Just before the launch that was counted last. kNone: this one is not timed.
  uint32_t Begin(Cost& cost, CUstream stream);
  // Just after it, on the same stream; with kNone nothing happens.
  void End(uint32_t sample, CUstream stream) { timer_.EndSample(sample, stream); }
  // Takes note of the samples that are complete.
  void Collect() { timer_.Collect(); }

 private:
  static constexpr size_t kNumCosts = 1024;  // a power of two
  static constexpr size_t kProbes = 8;
  static constexpr size_t kNumSamples = 16;

  bool IsToBeTimed(const Cost& cost) const;

  const std::unique_ptr<std::array<Cost, kNumCosts>> costs_;
  LaunchTimer timer_;
};

}  // namespace tally::server
