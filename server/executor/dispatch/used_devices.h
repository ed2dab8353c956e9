// On which devices programs of this executor have ever put work, those that have ended too: a context alone says
// little, because programs and the executor itself make one on the first device for no more than a question.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace tally::server {

class UsedDevices {
 public:
  // `on_new` is told of each device once, by the thread that hands its first work over, with locks held: quickly.
  explicit UsedDevices(std::function<void()> on_new = {}) : on_new_(std::move(on_new)) {}

  // `device` is an ordinal below 64.
  void Note(int device) {
    const uint64_t bit = uint64_t{1} << device;
    if ((mask() & bit) != 0 || (mask_.fetch_or(bit) & bit) != 0) return;
    if (on_new_) on_new_();
  }
  // Bit n: the device with ordinal n.
  uint64_t mask() const { return mask_.load(std::memory_order_relaxed); }

 private:
  const std::function<void()> on_new_;
  std::atomic<uint64_t> mask_{0};
};

}  // namespace tally::server
