// TimedWays: what is done again and again, in one of two ways, and timed on its stream: the choice between them
// (scheduler/window/way_choice.h) and the marks of samples that have not ended.
//
// Guarded by the session's sequencer; the stream's context must be current.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "scheduler/window/way_choice.h"
#include "server/executor/driver/completion_source.h"

namespace tally::server {

class TimedWays {
 public:
  explicit TimedWays(uint64_t uses_between_looks) : choice_(uses_between_looks) {}

  // What has ended by now counts in the choice.
  void Collect(const CompletionSource& completions) {
    const auto running = std::ranges::find_if(samples_, [&](const Sample& sample) {
      if (!sample.end.HasEnded()) return true;
      if (const auto duration = completions.Between(sample.begin, sample.end)) {
        choice_.OnDuration(sample.way, *duration);
      } else {
        choice_.OnLost(sample.way);
      }
      return false;
    });
    samples_.erase(samples_.begin(), running);
  }
  // How to do it this time. A sample is to be begun and ended, or lost.
  scheduler::WayChoice::Next Next() { return choice_.NextUse(); }
  static Mark Begin(CompletionSource& completions, CUstream stream) {
    Mark begin;
    if (completions.Put(stream, &begin, MarkKind::kTimed) != CUDA_SUCCESS) begin.Clear();
    return begin;
  }
  void End(scheduler::IssueWay way, Mark begin, CompletionSource& completions, CUstream stream) {
    Mark end;
    if (begin.exists() && completions.Put(stream, &end, MarkKind::kTimed) == CUDA_SUCCESS) {
      samples_.push_back({way, std::move(begin), std::move(end)});
    } else {
      choice_.OnLost(way);
    }
  }
  void Lose(scheduler::IssueWay way) { choice_.OnLost(way); }

  const scheduler::WayChoice& choice() const { return choice_; }

 private:
  struct Sample {
    scheduler::IssueWay way;
    Mark begin, end;
  };

  scheduler::WayChoice choice_;
  std::vector<Sample> samples_;  // in the order of their beginning
};

}  // namespace tally::server
