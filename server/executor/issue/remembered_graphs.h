// RememberedGraphs: launches of a window issued as a graph where their shape was seen before and its graph is faster.
//
//     seen for the first time    in program order; only the hash is kept
//     seen again                 its graph is built (window_graph.h), and both ways are timed (timed_ways.h)
//     from then on               the way that is faster; parameters set where they have changed
//
// * Order: a batch is put on the stream as a whole, behind what is there and before all that follows. Within it only
//   the shape's edges hold. Whoever admits launches to the window answers for these.
// * Which numbers the shape has for `kernel` and `geometry` is never a matter of right or wrong: nodes are compared
//   with their launches. They should differ for different kernels (Kernel::handle), block sizes and dynamic shared
//   memory, so that what differs is timed and decided apart. The grid may change from use to use, by an update of the
//   node.
// * Failures: what the driver refuses is issued in program order, so that the errors are those of the launches, and
//   that shape is left alone from then on. Only a lost context is reported as the graph's.
// * Admission is passed once for a graph, as for a program's own. It runs to its end once begun: while the device may
//   have to be stopped block by block, launches must not get here.
// * Bounds: `most_graphs` executables, of kMostSlots nodes each at most and of the session's budget (node_budget.h). A
//   new shape takes the place of one that was not used for `stale_after` batches. If there is none it runs in order, so
//   that shapes that take turns do not build their graphs each time.
// * A graph belongs to its stream: the driver runs launches of one executable one after another, and another stream
//   must not wait for what the program never ordered.
//
// Who has to call Forget, before what it names is gone: whoever unloads modules and libraries, changes a function's
// attributes (a graph has those that it was built with). Streams may go: one is compared, never used, and another that
// has its place may have its graphs. Marks and executables go with this object: a context has to be current, and
// `completions` to be there.
//
// One per session and device. Guarded by the session's sequencer; the stream's context must be current in Issue.
#pragma once

#include <cuda.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "scheduler/window/shape.h"
#include "scheduler/window/way_choice.h"
#include "server/executor/driver/completion_source.h"
#include "server/executor/issue/pending_launch.h"
#include "server/executor/issue/timed_ways.h"
#include "server/executor/issue/window_graph.h"

namespace tally::server {

struct LoadedImage;

class RememberedGraphs {
 public:
  struct Limits {
    NodeBudget* nodes = nullptr;  // null: without bound
    size_t most_graphs = 64;
    size_t most_shapes = 256;     // with or without a graph
    uint64_t stale_after = 1024;  // batches
    uint64_t uses_between_looks = scheduler::WayChoice::kUsesBetweenLooks;
  };
  // `completions`: of the device. Null: nothing is timed, and each shape that is seen again is a graph.
  RememberedGraphs(const DriverTable& driver, CompletionSource* completions, Limits limits);
  RememberedGraphs(const DriverTable& driver, CompletionSource* completions)
      : RememberedGraphs(driver, completions, Limits()) {}

  using IssueOne = std::function<CUresult(PendingLaunch&)>;
  // Node i of the shape is launches[i]: all on one stream, with stream and owner set, and noted as work of the session.
  // `issue_one` issues one by itself, admission included, and may keep it. Returns the first failure; later launches
  // are issued all the same, as in program order. May wait for admission; if the client left meanwhile:
  // AdmittedDispatch::kCancelled.
  CUresult Issue(const scheduler::WindowShape& shape, std::span<PendingLaunch> launches, const IssueOne& issue_one);

  void Forget(const Kernel& kernel);
  // All kernels of it, and of modules that belong to it if it is a library.
  void Forget(const LoadedImage& image);
  void ForgetAll() { shapes_.clear(); }

  struct Counts {
    uint64_t graph_launches = 0;
    uint64_t launches_in_graphs = 0;
    uint64_t launches_in_order = 0;
    uint64_t shapes_built = 0;
    uint64_t parameter_updates = 0;  // nodes told what changed
    uint64_t shapes_slower = 0;      // looks that ended with program order, timed or again
    uint64_t shapes_refused = 0;     // by the driver
    uint64_t graphs_evicted = 0;     // for other shapes
  };
  const Counts& counts() const { return counts_; }

  // Of the launches issued last.
  const scheduler::WayDurations& last() const { return last_; }

  struct ShapeReport {
    size_t num_nodes = 0;
    size_t num_levels = 0;
    size_t num_tracks = 0;
    // Medians of the last look; zero: not timed yet.
    std::chrono::nanoseconds in_order{0};
    std::chrono::nanoseconds graph{0};
    scheduler::IssueWay way = scheduler::IssueWay::kInOrder;
    bool is_refused = false;
    uint64_t num_uses = 0;  // since it was seen again
  };
  // Most used first.
  std::vector<ShapeReport> Report() const;

 private:
  struct Remembered {
    explicit Remembered(uint64_t uses_between_looks) : ways(uses_between_looks) {}

    uint64_t key = 0;
    const void* stream = nullptr;  // LaunchStream, which may be gone
    std::vector<scheduler::WindowShape::Node> nodes;
    std::unique_ptr<WindowGraph> graph;  // null: none at present
    TimedWays ways;
    bool is_refused = false;
    uint64_t num_uses = 0;
    uint64_t last_use = 0;
  };

  Remembered* Find(const scheduler::WindowShape& shape, std::span<const PendingLaunch> launches);
  bool MakeRoomForShape();
  bool MakeRoomForGraph();
  CUresult InOrder(std::span<PendingLaunch> launches, const IssueOne& issue_one);
  CUresult InOrderTimed(Remembered& known, std::span<PendingLaunch> launches, const IssueOne& issue_one);
  // Nothing: it has left nothing on the stream, and they are to be issued in order.
  std::optional<CUresult> AsGraph(Remembered& known, std::span<PendingLaunch> launches, bool is_sample);
  std::optional<CUresult> Launch(Remembered& known, std::span<PendingLaunch> launches, bool is_sample);
  std::optional<CUresult> Refuse(Remembered& known, CUresult why);
  void Collect(Remembered& known);
  template <typename Condition>
  void ForgetKernels(Condition condition);

  static constexpr size_t kMostSeen = 1024;

  const DriverTable& driver_;
  CompletionSource* const completions_;
  const Limits limits_;
  uint64_t now_ = 0;                                      // batches
  std::array<uint64_t, kMostSeen> seen_{};                // keys of shapes seen once, the last one of each place
  std::unordered_multimap<uint64_t, Remembered> shapes_;  // by key
  Counts counts_;
  scheduler::WayDurations last_;
};

}  // namespace tally::server
