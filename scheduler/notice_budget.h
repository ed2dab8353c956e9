// NoticeBudget: how much of best-effort programs' time may be lost to work that was announced and did not come.
//
// A token bucket in nanoseconds of the GPU. A notice takes what it may cost before it is given, and gets back what it
// has not cost. So whoever announces all the time costs best-effort work `share` of its time in the long run, and
// `most` more at once.
//
// Not thread-safe: the owner serialises calls. A time that goes backwards adds nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace tally::scheduler {

class NoticeBudget {
 public:
  struct Config {
    int per_cent = 5;
    std::chrono::nanoseconds most = std::chrono::milliseconds(10);
  };

  explicit NoticeBudget(Config config) : config_(config), left_(config.most) {}
  NoticeBudget() : NoticeBudget(Config{}) {}

  // Whether there is so much; it is taken then. `cost` is not negative.
  bool TryTake(std::chrono::nanoseconds cost, TimePoint now) {
    Fill(now);
    if (cost > left_) return false;
    left_ -= cost;
    return true;
  }
  void Return(std::chrono::nanoseconds part) { left_ = std::min(config_.most, left_ + part); }
  std::chrono::nanoseconds left() const { return left_; }

 private:
  void Fill(TimePoint now) {
    if (now <= filled_at_) return;
    // What the longest time that counts would fill; the difference of two times may be anything.
    const auto since = std::min<std::chrono::nanoseconds>(now - filled_at_, config_.most * 100 / config_.per_cent);
    left_ = std::min(config_.most, left_ + since * config_.per_cent / 100);
    filled_at_ = now;
  }

  const Config config_;
  std::chrono::nanoseconds left_;
  TimePoint filled_at_{};
};

}  // namespace tally::scheduler
