// When to register with kubelet: at once, but not again and again with one that restarts in a loop or refuses. Pure:
// the caller owns the clock. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace tally::device_plugin {

class RegistrationPace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  static constexpr std::chrono::seconds kFirstPause{1};
  static constexpr std::chrono::seconds kLongestPause{30};

  bool MayTry(Time now) const { return now >= next_; }
  // The pause after an attempt doubles while attempts follow one another, and is forgotten after twice the longest.
  void OnTry(Time now) {
    const bool is_soon = last_ && now - *last_ < 2 * kLongestPause;
    pause_ = is_soon ? std::min<Duration>(2 * pause_, kLongestPause) : Duration(kFirstPause);
    last_ = now;
    next_ = now + pause_;
  }
  Duration pause() const { return pause_; }

 private:
  std::optional<Time> last_;
  Time next_ = Time::min();
  Duration pause_ = kFirstPause;
};

}  // namespace tally::device_plugin
