// How long the launches of one session take on one device, by kind, from events around some of them.
//
// Nobody waits for an answer: a sample is looked at when a later one begins. Of each kind the first few launches are
// timed and then every 16th, of long ones all. Times that high-priority work disturbed count only while nothing better
// is known. A table of fixed size: kinds that do not fit push out rarer ones.
//
// Of() and Begin() are for the holder of the session's turn; the rest is thread-safe. The device's context must be
// current.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "server/executor/dispatch/high_priority_watch.h"

namespace tally::server {

struct DriverTable;

class LaunchCosts {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  static constexpr uint32_t kNone = UINT32_MAX;

  class Cost {
   public:
    // Of one launch that has the GPU for itself; zero: not known yet.
    Nanoseconds duration() const { return Nanoseconds(duration_ns_.load(std::memory_order_relaxed)); }

   private:
    friend class LaunchCosts;
    std::atomic<uint64_t> key_{0};
    std::atomic<int64_t> duration_ns_{0};
    uint32_t num_launches_ = 0;
  };

  LaunchCosts(const DriverTable& driver, int device, HighPriorityWatch& watch)
      : driver_(driver), device_(device), watch_(watch), costs_(std::make_unique<std::array<Cost, kNumCosts>>()) {}
  ~LaunchCosts();
  LaunchCosts(const LaunchCosts&) = delete;
  LaunchCosts& operator=(const LaunchCosts&) = delete;

  // Counts a launch of that kind.
  Cost& Of(uint64_t key);
  // Just before the launch that was counted last. kNone: this one is not timed.
  uint32_t Begin(Cost& cost, CUstream stream);
  // Just after it, on the same stream; with kNone nothing happens.
  void End(uint32_t sample, CUstream stream);
  // Takes note of the samples that are complete.
  void Collect();

 private:
  static constexpr size_t kNumCosts = 1024;  // a power of two
  static constexpr size_t kProbes = 8;
  static constexpr size_t kNumSamples = 16;

  struct Sample {
    enum class State : uint8_t { kFree, kBegun, kEnded } state = State::kFree;
    CUevent begin = nullptr;
    CUevent end = nullptr;
    Cost* cost = nullptr;
    uint64_t key = 0;
    std::optional<uint32_t> phase;
  };

  bool IsToBeTimed(const Cost& cost) const;
  void Note(Sample& sample);

  const DriverTable& driver_;
  const int device_;
  HighPriorityWatch& watch_;
  const std::unique_ptr<std::array<Cost, kNumCosts>> costs_;
  std::mutex mutex_;
  std::array<Sample, kNumSamples> samples_;  // guarded by mutex_
};

}  // namespace tally::server
