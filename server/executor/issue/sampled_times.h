// How long something takes that is done again and again, from times of some of the launches that the program made
// anyway: the first few, then every 64th. Times that high-priority work disturbed are thrown away.
//
//      SampledTimes::Sample sample(times, timer, stream);   ... work on the stream ...   sample.End(stream)
//
// Guarded by the session's sequencer, as the timer is then: nobody else collects it.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "scheduler/recent_times.h"
#include "server/executor/dispatch/launch_timer.h"

namespace tally::server {

class SampledTimes {
 public:
  static constexpr uint64_t kSampledFirst = 8;
  static constexpr uint64_t kSampledEach = 64;

  // Median of the last few; zero: not known yet.
  std::chrono::nanoseconds duration() const { return times_->empty() ? std::chrono::nanoseconds(0) : times_->Median(); }
  uint64_t num_times() const { return times_->size(); }
  // It is another thing from now on.
  void Forget() { *this = SampledTimes(); }

  // From just before the work to its end. Without End it comes to nothing.
  class Sample {
   public:
    Sample(SampledTimes& times, LaunchTimer& timer, CUstream stream) {
      timer.Collect();
      const uint64_t number = times.num_launches_++;
      if (number >= kSampledFirst && number % kSampledEach != 0) return;
      times_ = times.times_;
      if (auto begun = timer.Begin(stream)) timing_.emplace(std::move(*begun));
    }
    // All of the work has been put on the stream, or before something that the stream waits for.
    void End(CUstream stream) {
      if (!timing_) return;
      timing_->End(stream, [times = times_](std::chrono::nanoseconds taken) { times->Add(taken); });
      timing_.reset();
    }

   private:
    std::shared_ptr<scheduler::RecentTimes> times_;
    std::optional<LaunchTimer::Timing> timing_;
  };

 private:
  // Shared with samples that have not ended when this goes.
  std::shared_ptr<scheduler::RecentTimes> times_ = std::make_shared<scheduler::RecentTimes>();
  uint64_t num_launches_ = 0;
};

}  // namespace tally::server
