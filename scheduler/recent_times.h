// The last few times that something took. Not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace tally::scheduler {

class RecentTimes {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  static constexpr size_t kMost = 8;

  void Add(Nanoseconds time) {
    if (times_.size() == kMost) times_.erase(times_.begin());
    times_.push_back(time);
  }
  void Assign(size_t count, Nanoseconds time) { times_.assign(count, time); }
  size_t size() const { return times_.size(); }
  bool empty() const { return times_.empty(); }

  // Of at least one.
  Nanoseconds Median() const { return At(times_.size() / 2); }
  Nanoseconds UpperQuartile() const { return At((times_.size() * 3 - 1) / 4); }
  Nanoseconds Least() const { return *std::min_element(times_.begin(), times_.end()); }
  // What to reckon with where something was estimated before it was measured: a few times only say that it takes less,
  // as a single one may have been long by accident. More than that: what three of four stayed below.
  Nanoseconds OrEstimate(Nanoseconds estimate) const {
    constexpr size_t kFew = 3;
    if (empty()) return estimate;
    return size() < kFew ? std::min(estimate, Least()) : UpperQuartile();
  }

 private:
  Nanoseconds At(size_t rank) const {
    std::vector<Nanoseconds> times = times_;
    const auto at = times.begin() + static_cast<std::ptrdiff_t>(rank);
    std::nth_element(times.begin(), at, times.end());
    return *at;
  }

  std::vector<Nanoseconds> times_;
};

}  // namespace tally::scheduler
