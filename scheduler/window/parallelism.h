// WindowParallelism: how much of a stream's work could run side by side. Nothing is reordered: it only counts.
//
// Each launch is laid on a time line as early as those before it allow, on a GPU with room for all, by a window that
// takes the next launch when one of its own is done. Once with all hazards, once with read after write alone, as if
// memory were never used again: the difference is what reusing memory costs.
//
//      work            |AAAA|BB|CCCC|DD|        what the stream takes, one launch after another
//      longest chain   |AAAA|DD|                what is left if C and B run beside A
//                      |BB|CCCC|
//
// Cost and memory of two windows, and a pass over 64 times once they are full. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "scheduler/launch.h"
#include "scheduler/window/access.h"
#include "scheduler/window/window.h"

namespace tally::scheduler {

class WindowParallelism {
 public:
  explicit WindowParallelism(size_t capacity = kMostSlots)
      : all_(capacity, Hazards::kAll), read_after_write_(capacity, Hazards::kReadAfterWrite) {}

  // In program order; `duration` as measured, with the GPU for itself.
  void Add(std::span<const Access> accesses, Extent extent, Nanoseconds duration);
  void Close();

  // Times since the beginning.
  struct Report {
    Nanoseconds work{0};
    Nanoseconds longest_chain{0};
    Nanoseconds longest_chain_read_after_write{0};

    // 1: nothing can run side by side.
    double parallelism() const { return Over(longest_chain); }
    double parallelism_read_after_write() const { return Over(longest_chain_read_after_write); }

   private:
    double Over(Nanoseconds chain) const {
      return chain > Nanoseconds(0) ? static_cast<double>(work.count()) / static_cast<double>(chain.count()) : 1;
    }
  };
  Report report() const { return {work_, all_.longest(), read_after_write_.longest()}; }

 private:
  class TimeLine {
   public:
    TimeLine(size_t capacity, Hazards hazards) : window_(capacity, hazards) {}
    void Add(std::span<const Access> accesses, Extent extent, Nanoseconds duration);
    void Close() { window_.Close(); }
    Nanoseconds longest() const { return longest_; }

   private:
    void CompleteNext();

    Window window_;
    std::array<Nanoseconds, kMostSlots> ends_{};
    Nanoseconds now_{0};  // when the last place in the window became free
    Nanoseconds longest_{0};
  };

  Nanoseconds work_{0};
  TimeLine all_;
  TimeLine read_after_write_;
};

}  // namespace tally::scheduler
