// How long launches take on one device, from marks around them: nobody waits for the answer.
//
// Times that high-priority work disturbed are thrown away, unless somebody wants them all the same. Thread-safe; the
// device's context must be current.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "server/executor/dispatch/high_priority_watch.h"
#include "server/executor/driver/completion_source.h"

namespace tally::server {

class LaunchTimer {
 public:
  using OnDuration = std::function<void(std::chrono::nanoseconds)>;
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kMostPending = 64;

  // `watch` may be null. All outlive this. `most_pending`: times that are being taken at one moment,
  // give or take those that begin just then.
  LaunchTimer(CompletionSource& completions, int device, HighPriorityWatch* watch, size_t most_pending = kMostPending)
      : completions_(completions), device_(device), watch_(watch), most_pending_(most_pending) {
    samples_.reserve(most_pending);
  }
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

  // Just before what is to be timed. One of the two is called from a later Collect, on any thread; `on_disturbed` may
  // be none. kNone: too many times are being taken, or high-priority work runs and nobody wants to know.
  uint32_t BeginSample(CUstream stream, OnDuration on_duration, OnDuration on_disturbed);
  // Just after it; with kNone nothing happens. `on_duration`: instead of the one before, unless none.
  void EndSample(uint32_t id, CUstream stream, OnDuration on_duration = nullptr);
  void DropSample(uint32_t id);

  // A time being taken. Destroyed without End, it comes to nothing.
  class Timing {
   public:
    Timing(Timing&& other) noexcept : timer_(other.timer_), id_(std::exchange(other.id_, kNone)) {}
    Timing& operator=(Timing&&) = delete;
    ~Timing() { timer_.DropSample(id_); }
    // Everything that counts has been put on the stream.
    void End(CUstream stream, OnDuration on_duration) {
      timer_.EndSample(std::exchange(id_, kNone), stream, std::move(on_duration));
    }

   private:
    friend class LaunchTimer;
    Timing(LaunchTimer& timer, uint32_t id) : timer_(timer), id_(id) {}
    LaunchTimer& timer_;
    uint32_t id_;
  };
  std::optional<Timing> Begin(CUstream stream) {
    const uint32_t id = BeginSample(stream, nullptr, nullptr);
    return id == kNone ? std::nullopt : std::optional<Timing>(Timing(*this, id));
  }

  // Reports what has ended. Cheap when nothing is pending: to be called at each launch.
  void Collect();

 private:
  struct Sample {
    uint32_t id = 0;
    Mark begin, end;                // `end` exists once it has been put
    std::optional<uint32_t> phase;  // none: disturbed from the start
    OnDuration on_duration, on_disturbed;
  };
  std::optional<Sample> TakeEnded(Look* look);
  std::optional<uint32_t> Phase() const { return watch_ == nullptr ? 0 : watch_->QuietPhase(device_); }

  CompletionSource& completions_;
  const int device_;
  HighPriorityWatch* const watch_;
  const size_t most_pending_;
  std::atomic<size_t> num_pending_{0};  // of samples_
  std::mutex mutex_;
  std::vector<Sample> samples_;  // guarded by mutex_, as below; in the order of their begin
  uint32_t next_id_ = 0;
};

}  // namespace tally::server
