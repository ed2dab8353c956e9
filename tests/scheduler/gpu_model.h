// A small model of a GPU that executes launches, in simulated time: for property tests and bench/scheduler-sim.
//
//   * launches of one stream run one after another, in the order of their (first) dispatch;
//   * of those that are first in their streams, the GPU starts them in the order of dispatch as soon as they fit: the
//     fills of those that run add up to at most the whole GPU. One that does not fit keeps later ones back;
//   * a launch that can yield, once asked, leaves within its turnaround (at once if it had not started) and keeps what
//   it
//     has done; its stream waits for it. Dispatched again it does the rest;
//   * launches do not slow each other down. Neither the driver's time slices nor memory bandwidth are modelled.
//
// Launches are known by small dense numbers that the caller chooses and may use again once a launch is gone.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <queue>
#include <vector>

#include "base/clock.h"
#include "scheduler/launch.h"

namespace tally::scheduler {

class GpuModel {
 public:
  struct Work {
    uint32_t stream = 0;  // small dense numbers too
    Nanoseconds duration{0};
    uint16_t fill = kFillsGpu;
    bool can_yield = false;
    Nanoseconds turnaround{0};  // of one that can yield
  };
  struct End {
    uint32_t launch = 0;
    bool has_yielded = false;  // it is not complete
    Nanoseconds gpu_time{0};   // since its last dispatch
    Nanoseconds waited{0};     // from its last dispatch until it ran
  };

  // First dispatch.
  void Dispatch(uint32_t launch, const Work& work, TimePoint now);
  // It had yielded.
  void Resume(uint32_t launch, bool can_yield, TimePoint now);
  // Everything best-effort in flight that can yield. Those that have not started have yielded at once.
  void AskToYield(TimePoint now);
  // A launch that had yielded will not be resumed.
  void Forget(uint32_t launch, TimePoint now);

  std::optional<TimePoint> NextEnd() const;
  // What left the GPU until `now`, one at a time, in order of time.
  std::optional<End> TakeEnd(TimePoint now);

  uint32_t num_running() const { return num_running_; }
  bool IsRunning(uint32_t launch) const { return launches_[launch].state == State::kRunning; }
  uint32_t num_in_flight() const { return num_in_flight_; }
  // Time x fill that the GPU has worked, of launches that have ended.
  Nanoseconds busy_time() const { return busy_time_; }

 private:
  enum class State : uint8_t { kGone, kWaiting, kRunning, kYielded };
  struct Launch {
    Work work;
    State state = State::kGone;
    uint64_t order = 0;
    Nanoseconds left{0};
    TimePoint dispatched_at{};
    TimePoint started_at{};
    uint64_t end_stamp = 0;  // the entry of ends_ that counts
    bool is_leaving = false;
    bool may_be_asked = false;
  };
  struct Ending {
    TimePoint at;
    uint64_t stamp;
    uint32_t launch;
    bool operator>(const Ending& other) const { return at != other.at ? at > other.at : stamp > other.stamp; }
  };
  struct Ready {
    uint64_t order;
    uint32_t launch;
    bool operator>(const Ready& other) const { return order > other.order; }
  };
  template <typename T>
  using Earliest = std::priority_queue<T, std::vector<T>, std::greater<T>>;

  Launch& At(uint32_t launch);
  void Enter(uint32_t launch, TimePoint now);
  void PushIfFirst(uint32_t launch);
  void LeaveStream(uint32_t launch);
  void StartWhatFits(TimePoint now);
  void EndAt(uint32_t launch, TimePoint at);
  bool IsCurrent(const Ending& ending) const;

  std::vector<Launch> launches_;
  std::vector<std::deque<uint32_t>> streams_;
  Earliest<Ready> ready_;  // first in their streams; entries of others are stale
  mutable Earliest<Ending> ends_;
  std::vector<uint32_t> may_be_asked_;  // launches in flight that can yield and were not asked; some are stale
  uint64_t next_order_ = 1;
  uint64_t next_stamp_ = 1;
  uint32_t fill_ = 0;
  uint32_t num_running_ = 0;
  uint32_t num_in_flight_ = 0;
  Nanoseconds busy_time_{0};
};

}  // namespace tally::scheduler
