// SampledParallelism: WindowParallelism for a small part of its cost. It compares some launches in a row, a stretch,
// and takes those that follow for like them until comparing was at most kMostPercent of the time.
//
//      time       |compared|            passed             |compared|        passed        |
//      launches    a b c d  e f g h i j k l m n o p q r s t  u v w x  ...
//      counted as  what is   the chain of a to d, in        what is
//                  found     proportion                     found
//
// So all launches count, however cheap or dear the part is that was compared. Cost is measured, by the caller's clock.
//
// Stretches begin and end where the program asks for something else, if it does so often enough: steps are compared as
// a whole then. Where it does not, the cut is a Close: what runs side by side there is not seen.
//
// Passing costs a count; each kLaunchesATime-th launch reads the clock. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "base/clock.h"
#include "scheduler/window/parallelism.h"

namespace tally::scheduler {

class SampledParallelism {
 public:
  // Of the time, to be spent on comparing.
  static constexpr int kMostPercent = 2;
  // Of a stretch; it is longer than the least only where the program asks for nothing else.
  static constexpr uint64_t kLeastLaunches = 256;
  static constexpr uint64_t kMostLaunches = 1024;
  static constexpr uint64_t kLaunchesATime = 64;

  // `clock` outlives this.
  explicit SampledParallelism(const Clock& clock) : clock_(clock) {}

  // Launches in program order.
  void Add(std::span<const Access> accesses, Extent extent) { is_looking_ ? Compare(accesses, extent) : Pass(); }
  // The program asks for anything else: all that comes is behind what was launched.
  void Close();

  // Launches since the beginning; the chains of those that were not compared are estimates.
  struct Report {
    uint64_t launches = 0;
    uint64_t compared = 0;
    uint64_t longest_chain = 0;
    uint64_t longest_chain_read_after_write = 0;
  };
  const Report& report();

 private:
  // Of passed launches: as many of `chain` in `work` as the last stretch had.
  struct Estimate {
    uint64_t chain = 0;
    uint64_t owed = 0;  // less than a launch, times the stretch's
    void Add(uint64_t launches, uint64_t work, uint64_t* sum);
  };

  void Compare(std::span<const Access> accesses, Extent extent);
  void Pass();
  void BeginStretch();
  void EndStretch(TimePoint now);
  void Settle();

  const Clock& clock_;
  WindowParallelism parallelism_;  // of compared launches, a unit each
  WindowParallelism::Report counted_;
  Report report_;

  bool is_looking_ = true;
  uint64_t num_compared_ = 0;  // in this stretch, or in the last one
  bool is_open_ = false;       // something was compared since the last Close
  TimePoint began_;
  std::chrono::nanoseconds cost_{0};
  WindowParallelism::Report before_;  // the stretch

  TimePoint looks_at_;        // again, at the earliest
  uint64_t num_passed_ = 0;   // since the stretch
  uint64_t num_settled_ = 0;  // of those
  uint64_t due_since_ = 0;    // of those; 0: it is not time yet
  Estimate all_;
  Estimate read_after_write_;
};

}  // namespace tally::scheduler
