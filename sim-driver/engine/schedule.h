// Which block, warp or group of lanes runs next, and for how long, when a launch asks for another order than the
// natural one (LaunchRequest::schedule_seed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>

namespace tally::sim_driver {

// Draws for one cluster. A default-made one draws nothing: everything stays in its natural order.
class Schedule {
 public:
  Schedule() = default;
  Schedule(uint64_t seed, uint64_t cluster_index) : state_(seed == 0 ? 0 : Mix(seed ^ Mix(cluster_index + 1)) | 1) {}

  bool IsNatural() const { return state_ == 0; }
  // Below `count`; 0 in natural order.
  uint32_t Pick(size_t count) {
    if (state_ == 0 || count < 2) return 0;
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<uint32_t>((state_ >> 32) % count);
  }
  // A turn of up to `longest` instructions: often a few, sometimes all.
  int32_t Turn(int32_t longest) {
    static constexpr int32_t kShort = 24;
    if (state_ == 0 || Pick(4) == 0) return longest;
    return 1 + static_cast<int32_t>(Pick(kShort));
  }

  // How many turns a warp stays away from a wait: none, a few, or so many that all others get as far as they can.
  uint32_t Delay() {
    static constexpr uint32_t kFew = 8, kMany = 64;
    const uint32_t kind = Pick(4);
    return kind == 0 ? kMany : kind == 1 ? 1 + Pick(kFew) : 0;
  }

  // The place of `index` in an order of `count` that is drawn from `seed`.
  static uint64_t Permute(uint64_t index, uint64_t count, uint64_t seed) {
    if (seed == 0 || count < 2 || count >> 32 != 0) return index;
    uint64_t stride = Mix(seed) % count;
    while (std::gcd(stride, count) != 1) stride = (stride + 1) % count;
    return (index * stride + Mix(seed + 1) % count) % count;
  }

 private:
  static uint64_t Mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
  }
  uint64_t state_ = 0;
};

}  // namespace tally::sim_driver
