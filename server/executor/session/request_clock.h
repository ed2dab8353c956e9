// How long the requests on one stream take, as far as CUDA calls tell what a request is.
//
//      copy   launch ... launch        wait for the stream
//      |-------- a request ----------------------|
//
// A request begins with the first work that is put on the stream after the program has waited for it, and ends when the
// next wait for the stream (of which there was a launch since) is over. A wait without a launch before it, as for an
// input that is copied synchronously, ends nothing: the request begins anew with what follows.
//
// Thread-safe: channels wait without their session's sequencer.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace tally::server {

class RequestClock {
 public:
  // Before the work is handed to the driver. The time is asked for only if a request begins.
  void OnWork(bool is_launch, const Clock& clock) {
    if (began_ns_.load(std::memory_order_relaxed) == 0) {
      began_ns_.store(clock.Now().time_since_epoch().count(), std::memory_order_relaxed);
    }
    if (is_launch) has_launch_.store(true, std::memory_order_relaxed);
  }
  bool has_begun() const { return began_ns_.load(std::memory_order_relaxed) != 0; }
  // A wait for the stream is over. What the request took that ends with it, if one does.
  std::optional<std::chrono::nanoseconds> OnWaited(TimePoint now) {
    const int64_t began = began_ns_.exchange(0, std::memory_order_relaxed);
    const bool is_request = has_launch_.exchange(false, std::memory_order_relaxed) && began != 0;
    if (!is_request) return std::nullopt;
    return now.time_since_epoch() - std::chrono::nanoseconds(began);
  }

 private:
  std::atomic<int64_t> began_ns_{0};  // of the monotonic clock; 0: no request
  std::atomic<bool> has_launch_{false};
};

}  // namespace tally::server
