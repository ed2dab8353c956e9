// LaunchWindow: launches of one stream that are held for a moment, so that those which touch different memory can run
// side by side. Copies and fills within the device's memory (Transfer) are launches here, too.
//
//      launch ---> Take: held, with edges to what it must come behind ---> Issue: as a graph of that shape
//              `-> not to be held: what is held is issued first, then the launch as ever
//
// One stream of a session has held launches at a time. Whoever is about to do anything else for that session (another
// stream, a copy from the host, a wait, a free) calls Issue before it begins, so nothing can overtake them.
//
// A window ends with 64 launches (Means::most_launches), or where the first launch of a step comes again: graphs are
// made for the shapes that come back, so the cuts must fall on the same places in each step, whatever the number of
// launches between two waits.
//
// Holding pays while the GPU has something else to do, and costs time where it waits for the program: then the kernels
// could have run while the program was still launching. Both are added up, and while holding does not pay for a session
// its launches are not held. Whether a graph is faster than program order is RememberedGraphs' matter.
//
// Guarded by the session's sequencer, but for has_launches().
//
// Source: ACS (arXiv 2401.12377), section III: a window of pending kernels, segments as its input.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "proto/control/window_figures.h"
#include "scheduler/window/repeated_window.h"
#include "scheduler/window/sampled_parallelism.h"
#include "scheduler/window/shape.h"
#include "scheduler/window/way_choice.h"
#include "server/executor/dispatch/figure_counters.h"
#include "server/executor/issue/launch_accesses.h"
#include "server/executor/issue/pending_launch.h"

namespace tally::server {

using control::WindowEnd;

// The place of a client's stream in its calls: launches of one are held together.
struct HeldPlace {
  uint64_t stream = 0;   // as the client names it
  uint32_t context = 0;  // of the request
  uint32_t channel = 0;
  bool operator==(const HeldPlace&) const = default;
};

class LaunchWindow {
 public:
  // How long an idle channel looks for more before it issues what is held.
  static constexpr std::chrono::microseconds kPatience{30};

  // What it needs of others.
  struct Means {
    // What the launch touches. Valid until the next call.
    std::function<const LaunchAccesses&(const PendingLaunch&)> accesses_of;
    // Puts the launches, which have that shape, on their stream. Returns the first failure.
    std::function<CUresult(const scheduler::WindowShape&, std::span<PendingLaunch>, scheduler::WayDurations*)> issue;
    // Whether what was issued last is done.
    std::function<bool()> is_idle;
    // That it holds at a time, 1 to kMostSlots.
    size_t most_launches = scheduler::kMostSlots;
  };

  // `holds`: else it only looks at what could run side by side (shadow). `figures` and `clock` outlive this.
  LaunchWindow(bool holds, Means means, FigureCounters& figures, const Clock& clock);

  // From now on launches of that place come. Nothing may be held.
  void Enter(const HeldPlace& place) { place_ = place; }
  const HeldPlace& place() const { return place_; }
  // Holds a launch, which is spent then; its owner, stream and all else are set. False: it is the caller's to issue,
  // behind all that was held. `failure`: of what was issued meanwhile, if anything was.
  bool Take(PendingLaunch& launch, CUresult* failure);
  // Puts on its stream whatever is held. The device's context must be current. Returns the first failure; all is on its
  // way or refused then, as in program order.
  CUresult Issue(WindowEnd why);

  // From any thread; what was held may have been issued since.
  bool has_launches() const { return num_held_.load(std::memory_order_relaxed) != 0; }
  // Of what is held.
  int device() const { return device_; }

 private:
  // Kernel, or that it copies or fills, and geometry: what cannot be changed in a graph that was built.
  struct Kind {
    uint64_t kernel = 0;
    uint64_t geometry = 0;
    bool operator==(const Kind&) const = default;
  };
  // Before so many launches, a window does not end because a step begins: the kernel may be a frequent one.
  static constexpr size_t kShortestStep = 16;

  static std::optional<Kind> KindOf(const PendingLaunch& launch);
  // Why it must be issued by itself, whatever it touches; null: it need not.
  static const char* BarrierOf(const PendingLaunch& launch);
  CUresult MakeRoom(const Kind& kind);
  void Hold(PendingLaunch& launch, const Kind& kind, const LaunchAccesses& accesses);
  CUresult Pass(const char* barrier);
  void CloseShadow();
  // What it was told of one batch.
  struct Batch {
    WindowEnd why = WindowEnd::kFull;
    size_t num_launches = 0;
    std::chrono::nanoseconds held_for{0};  // while the GPU had nothing to do
    std::chrono::nanoseconds period{0};    // since the one before it
    scheduler::WayDurations durations;
  };
  void Judge(const Batch& batch);
  // How long the GPU has had nothing to do while they were held.
  std::chrono::nanoseconds IdleFor(TimePoint now) const;

  const bool holds_;
  const Means means_;
  FigureCounters& figures_;
  const Clock& clock_;

  HeldPlace place_;
  int device_ = 0;
  std::vector<PendingLaunch> launches_;  // room for most_launches; the first num_held_ of them
  std::atomic<size_t> num_held_{0};
  scheduler::RepeatedWindow window_;
  scheduler::WindowShape shape_;
  scheduler::SampledParallelism parallelism_;  // shadow
  scheduler::SampledParallelism::Report reported_;
  const char* last_barrier_ = nullptr;
  size_t last_barrier_place_ = 0;  // of its name, which takes a while to find
  std::optional<Kind> step_begins_;
  bool begins_step_ = true;  // the next launch does
  TimePoint held_since_;
  TimePoint issued_at_;                // the batch before
  std::chrono::nanoseconds lasts_{0};  // that one, on the GPU; zero: not known
  bool was_idle_ = false;              // the stream, when the first of them came

  // Of the windows since it was last asked whether holding pays.
  std::chrono::nanoseconds if_not_held_{0};
  std::chrono::nanoseconds if_held_{0};
  uint32_t num_judged_ = 0;
  uint64_t num_passing_ = 0;  // launches that are not held before it is tried again
  uint64_t rest_ = 0;         // of so many the last time
};

}  // namespace tally::server
