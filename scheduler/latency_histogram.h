// LatencyHistogram: quantiles of many latencies in constant memory, at most 3 % too high.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace tally::scheduler {

class LatencyHistogram {
 public:
  void Add(std::chrono::nanoseconds latency) {
    ++counts_[BucketOf(static_cast<uint64_t>(std::max<int64_t>(latency.count(), 0)))];
    ++num_;
  }
  uint64_t num() const { return num_; }
  // The upper end of the bucket in which `percentile` of the latencies end; zero without any.
  std::chrono::nanoseconds Quantile(double percentile) const {
    if (num_ == 0) return {};
    const auto rank = static_cast<uint64_t>(std::ceil(percentile / 100 * static_cast<double>(num_)));
    uint64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen >= std::max<uint64_t>(rank, 1)) return std::chrono::nanoseconds(UpperEnd(i));
    }
    return std::chrono::nanoseconds(UpperEnd(counts_.size() - 1));
  }
  void Clear() {
    counts_.fill(0);
    num_ = 0;
  }

 private:
  // 32 buckets per power of two; 0 to 63 ns one each; up to 2^43 ns, more than two hours.
  static constexpr int kSubBits = 5;
  static constexpr int kMostBits = 43;
  static size_t BucketOf(uint64_t value) {
    value = std::min(value, (uint64_t{1} << kMostBits) - 1);
    const int shift = std::max(0, static_cast<int>(std::bit_width(value)) - kSubBits - 1);
    return (static_cast<size_t>(shift) << kSubBits) + static_cast<size_t>(value >> shift);
  }
  static int64_t UpperEnd(size_t bucket) {
    if (bucket < (size_t{2} << kSubBits)) return static_cast<int64_t>(bucket);
    const size_t shift = (bucket >> kSubBits) - 1;
    const size_t mantissa = bucket - (shift << kSubBits);
    return (static_cast<int64_t>(mantissa + 1) << shift) - 1;
  }

  std::array<uint32_t, size_t{kMostBits - kSubBits + 1} << kSubBits> counts_{};
  uint64_t num_ = 0;
};

}  // namespace tally::scheduler
