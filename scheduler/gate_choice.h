// GateChoice: whether a kernel that can be gated had better be, and what its gate costs and gives.
//
// A gate makes launches that nobody stops a little slower: an atomic now and then, a look per warp. For a long kernel
// that is nothing beside what stopping it saves. A short one gives the GPU back by itself; whether it is better off
// without its gate depends on what stands around it in its stream, because between launches with a gate and those
// without goes a marker, which takes time, too. So nobody computes it:
//
//   gated launches are timed. The gate costs little, or the kernel is not short: it stays gated.
//   otherwise a few launches are made without, and timed with everything that their being so brings with it.
//   then the faster way is used.
//
// One for each (kernel, grid, block, shared memory). Not thread-safe. No clock: the caller measures.
#pragma once

#include <chrono>
#include <cstdint>

#include "scheduler/recent_times.h"
#include "scheduler/tuning.h"

namespace tally::scheduler {

class GateChoice {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  static constexpr uint32_t kSamplesEach = 3;
  static constexpr uint32_t kLaunchesBetweenSamples = 256;
  // What a gate may cost of a short kernel without anybody's asking whether it pays: both, or it is not dear.
  static constexpr int kDearPercent = 2;
  static constexpr Nanoseconds kDear{500};
  // Blocks that run on for as long after a stop keep a request longer than a switch to a context of its own would:
  // twice as long (docs/driver-waits.md).
  static constexpr Nanoseconds kLongBlocks{400'000};

  struct Next {
    bool is_gated = true;
    bool is_sample = false;  // time it
  };
  // `original`: how long the kernel takes by itself; zero: not known.
  Next NextLaunch(Nanoseconds original, Nanoseconds threshold);
  // A timed launch took so long and was not stopped; one that was not gated with the markers around it.
  void OnDuration(bool is_gated, Nanoseconds duration) { (is_gated ? gated_ : alone_).Add(duration); }
  // A queue was stopped in this kernel and empty after `turnaround`.
  void OnTurnaround(Nanoseconds turnaround) { turnarounds_.Add(turnaround); }

  // It is launched without its gate.
  bool is_left_alone() const { return is_left_alone_; }
  bool has_duration() const { return !gated_.empty(); }
  Nanoseconds duration() const { return gated_.empty() ? Nanoseconds(0) : gated_.Median(); }
  uint32_t num_samples() const { return static_cast<uint32_t>(gated_.size()); }
  bool is_turnaround_measured() const { return !turnarounds_.empty(); }
  // Measured, and possible: launches behind this one, all of which leave at once, wait for the service's own blocks.
  bool has_long_blocks() const {
    return turnarounds_.OrEstimate(Nanoseconds(0)) >= kLongBlocks && (!has_duration() || duration() >= kLongBlocks);
  }
  // Measured ones win once there are a few.
  Nanoseconds Turnaround(Nanoseconds estimate) const { return turnarounds_.OrEstimate(estimate); }

 private:
  bool IsDear(Nanoseconds original, Nanoseconds threshold) const;

  RecentTimes gated_, alone_, turnarounds_;
  bool is_left_alone_ = false;
  uint32_t num_since_sample_ = 0;
};

}  // namespace tally::scheduler
