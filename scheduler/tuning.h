// Tuning: the times that decide how much a best-effort launch may get in the way of a high-priority one.
//
// Fixed by the configuration, or moved between bounds by SloFeedback. A policy takes a new Tuning at any time.
#pragma once

#include <chrono>

namespace tally::scheduler {

// What passes until the GPU is another's besides the time of what runs there: the flag must be seen, the last blocks
// end, the other's launch arrive. Of it 4 us until the flag is written were measured on an H200; the rest is allowed
// for.
inline constexpr std::chrono::nanoseconds kGiveBackOverhead = std::chrono::microseconds(6);

// Whether what runs on for so long (zero: not known) gives the GPU back within the threshold by itself.
constexpr bool IsShort(std::chrono::nanoseconds time, std::chrono::nanoseconds threshold) {
  return time > time.zero() && time + kGiveBackOverhead <= threshold;
}

// Whether somebody may ask for this turnaround threshold: from 1 us to 1 s.
constexpr bool IsTurnaround(std::chrono::nanoseconds threshold) {
  return threshold >= std::chrono::microseconds(1) && threshold <= std::chrono::seconds(1);
}

struct Tuning {
  // Within what time a best-effort kernel should give the GPU back. The policy does not use it: it is what the caller
  // gives to VariantChoice, here because it is tuned together with the others. Default: the paper's.
  std::chrono::nanoseconds turnaround_threshold{31'600};
  // Bounds of HoldOffRule's hold-off.
  std::chrono::nanoseconds min_hold_off = std::chrono::microseconds(20);
  std::chrono::nanoseconds max_hold_off = std::chrono::microseconds(500);
  // What is in flight of best-effort work should drain within this time.
  std::chrono::nanoseconds target_drain = std::chrono::microseconds(500);

  bool operator==(const Tuning&) const = default;
};

}  // namespace tally::scheduler
