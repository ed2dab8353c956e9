// WayChoice: whether launches of one shape are better issued as a graph or in program order.
//
// Nobody computes it. How much runs side by side, what the driver takes for each launch, whether the host or the GPU is
// behind: all of that is in the time from before the first launch to behind the last. So both ways are timed, in turns,
// and a graph is used only as long as it is worth its parameters, its memory and its being unstoppable:
//
//   look        graph, in order, graph, in order, ...: kSamplesEach times each; other uses go the way chosen last
//   decided     the graph if its median is kLeastGainPercent below the other one's, else in order
//   look again  after `uses_between_looks` uses: programs change
//
// Not thread-safe. No clock: the caller measures.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "scheduler/recent_times.h"

namespace tally::scheduler {

enum class IssueWay : uint8_t { kInOrder, kGraph };

// What launches of one shape take, by the last look; zero: not known.
struct WayDurations {
  std::chrono::nanoseconds in_order{0};
  std::chrono::nanoseconds as_issued{0};
};

class WayChoice {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  static constexpr size_t kSamplesEach = 5;
  static constexpr int kLeastGainPercent = 5;
  static constexpr uint64_t kUsesBetweenLooks = 1000;
  static_assert(kSamplesEach <= RecentTimes::kMost);

  // The first use looks.
  explicit WayChoice(uint64_t uses_between_looks = kUsesBetweenLooks) : uses_between_looks_(uses_between_looks) {}

  struct Next {
    IssueWay way = IssueWay::kInOrder;
    bool is_sample = false;  // time it: OnDuration or OnLost will be called, in any order with other uses
  };
  Next NextUse();
  void OnDuration(IssueWay way, Nanoseconds duration);
  // A sample that came to nothing: there will be another one.
  void OnLost(IssueWay way);

  IssueWay chosen() const { return chosen_; }
  bool is_looking() const { return is_looking_; }
  // By the last look that came to an end; zero: none has.
  Nanoseconds duration(IssueWay way) const { return sides_[Index(way)].median; }

 private:
  struct Side {
    size_t num_asked = 0;  // in this look
    RecentTimes times;     // of those
    Nanoseconds median{0};
  };
  static size_t Index(IssueWay way) { return static_cast<size_t>(way); }
  void Decide();

  uint64_t uses_between_looks_;
  IssueWay chosen_ = IssueWay::kInOrder;
  bool is_looking_ = true;
  uint64_t uses_since_look_ = 0;
  std::array<Side, 2> sides_;
};

}  // namespace tally::scheduler
