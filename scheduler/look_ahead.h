// LookAhead: how many best-effort launches may be in flight, so that what is queued drains in bounded time.
//
// Work that was handed to the GPU cannot be taken back (until kernels can yield), so the queue must be short in *time*.
// Launches differ by orders of magnitude, so a fixed count is wrong for most programs: the depth follows the measured
// drain time (dispatch of a launch to its completion, all earlier ones included). Additive increase while draining is
// quick, halving when it is slow: the depth settles where draining takes about `target_drain`.
//
// Not thread-safe. No clock: the caller measures.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace tally::scheduler {

class LookAhead {
 public:
  struct Config {
    std::chrono::nanoseconds target_drain = std::chrono::microseconds(500);
    uint32_t max_depth = 64;
  };

  explicit LookAhead(Config config) : config_(config) {}

  bool HasRoom() const { return num_in_flight_ < depth_; }
  // Returns what OnDrained is to be told.
  uint64_t OnDispatched() {
    ++num_in_flight_;
    return round_;
  }
  // A launch completed `drain_time` after it was dispatched.
  void OnDrained(uint64_t round, std::chrono::nanoseconds drain_time) {
    if (round != round_) return;  // given up
    --num_in_flight_;
    Follow(drain_time);
  }
  // Somebody has waited so long for room: what is in flight may run for ever, and takes nobody's place from now on.
  void GiveUp(std::chrono::nanoseconds waited) {
    num_in_flight_ = 0;
    ++round_;
    Follow(waited);
  }

  // From the next drained launch on.
  void SetTargetDrain(std::chrono::nanoseconds target) { config_.target_drain = target; }

  // Launches that may be in flight at one time; at least 1.
  uint32_t depth() const { return depth_; }

 private:
  void Follow(std::chrono::nanoseconds drain_time) {
    if (drain_time > config_.target_drain) {
      depth_ = std::max<uint32_t>(1, depth_ / 2);
    } else if (drain_time < config_.target_drain / 2) {
      depth_ = std::min(config_.max_depth, depth_ + 1);
    }
  }

  Config config_;
  uint32_t depth_ = 1;
  uint32_t num_in_flight_ = 0;  // dispatched in this round
  uint64_t round_ = 1;
};

}  // namespace tally::scheduler
