// Launches of a session's graphs: as a whole, or in partitions, so that best-effort graphs can be taken from the GPU.
//
// The GPU runs a graph to its end. While somebody with priority is there, a best-effort graph that consists of kernels,
// fills, copies and empty nodes is cut (scheduler/taskgraph) into partitions short enough to give the GPU back in time,
// each of which passes admission (issue/partitioned_graph.h). A kernel that takes longer than that by itself is
// launched as any other kernel is: gated, in slices, or in whatever form it has (issue/launch_forms.h).
//
//     instantiated   a clone is kept: the program may change or destroy its own graph
//     launched       as a whole, and timed now and then; in partitions if somebody is there to give the GPU to, and if
//                    it takes longer as a whole than it may
//     cut again      if a partition was measured to take too long, with what was measured as the costs of its tasks
//     node set       followed in the clone and in its partition; what cannot be followed leaves the graph whole for
//     good updated        cut anew, unless that happens about as often as it is launched
//
// A program that asks for it has its graphs spread over all GPUs that it may use, where that is quicker, in place of
// partitions (graph_spread.h). Such a launch waits here until it has ended, and nothing else of the session is carried
// out meanwhile: so its order is kept, whatever streams there are.
//
// Everything else is launched as a whole, always: `tallyctl graphs` says why. The program's own executable stays as it
// is, and what the driver says of a partition that is being made nobody learns.
//
// Guarded by the session's sequencer, but for `rows`. A context must be current wherever the driver is asked.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "proto/control/graph_figures.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/launch_stream.h"
#include "server/executor/session/client_context.h"
#include "server/executor/session/graph_launch_ways.h"
#include "server/executor/session/graph_mirrors.h"
#include "server/executor/session/graph_rows.h"
#include "server/executor/session/window_memory.h"

namespace tally::server {

class ClientNames;
class ServedRequest;
class SessionState;

class GraphLaunches {
 public:
  explicit GraphLaunches(const DriverTable& driver);
  GraphLaunches(const GraphLaunches&) = delete;
  GraphLaunches& operator=(const GraphLaunches&) = delete;

  // As the program asked for it; before channels exist.
  void SetMode(control::GraphMode mode) { mode_ = mode; }

  // `exec` does what `graph` says, from now on. `flags`: that it was instantiated with.
  void OnInstantiated(ServedRequest& served, CUgraph graph, CUgraphExec exec, unsigned long long flags);
  void OnUpdated(ServedRequest& served, CUgraph graph, CUgraphExec exec);
  // Some node of it was changed, or is about to be, in a way that is not followed.
  void OnChanged(CUgraphExec exec);
  // A node of it was set. `in_graph` sets that of a graph likewise, `in_exec` that of an executable.
  using SetInGraph = std::function<CUresult(CUgraphNode node)>;
  using SetInExec = std::function<CUresult(CUgraphExec exec, CUgraphNode node)>;
  void OnNodeSet(CUgraphExec exec, CUgraphNode node, const SetInGraph& in_graph, const SetInExec& in_exec);
  void OnDestroyed(CUgraphExec exec) { execs_.erase(exec); }
  // Device memory that begins there is about to be freed.
  void OnFreed(uint64_t address);
  // Kernels are about to be unloaded, perhaps some of a graph: no clone is read any more.
  void OnUnload();
  // Nothing is in flight any more.
  void Clear();

  // On a stream that is ordered, but not sealed.
  CUresult Launch(ServedRequest& served, ClientNames& names, Stream& stream, CUgraphExec exec);

  PublishedGraphs rows;  // thread-safe

 private:
  using Exec = GraphLaunchWays;

  // kNone: in partitions, which it has then.
  control::WholeReason ChooseWay(ServedRequest& served, const Stream& stream, Exec& exec);
  // Likewise: spread.
  control::WholeReason ChooseSpread(ServedRequest& served, Stream& stream, Exec& exec);
  CUresult LaunchSpread(ServedRequest& served, Stream& stream, Exec& exec);
  // All that the session has queued on any stream has ended. False: it does not, within some time.
  bool AwaitIdle(ServedRequest& served, const Stream& stream);
  CUresult LaunchWhole(ServedRequest& served, Stream& stream, CUgraphExec graph_exec, Exec* exec);
  CUresult LaunchInPartitions(ServedRequest& served, ClientNames& names, Stream& stream, Exec& exec);
  CUresult LaunchAlone(ServedRequest& served, ClientNames& names, Stream& stream, Exec& exec, uint32_t task);
  // Launches of one executable never overlap, which the driver sees to for its own: behind that on another stream.
  CUresult OrderBehindLast(ServedRequest& served, Stream& stream, Exec& exec, bool is_cut);
  CUresult OthersFor(ServedRequest& served, const Stream& stream, size_t count, std::span<LaunchStream>* others);
  LaunchTimer& TimerOf(ServedRequest& served, int device);
  void Publish(const Clock& clock);

  const DriverTable& driver_;
  const bool is_forced_;
  const bool is_spread_forced_;
  control::GraphMode mode_ = control::GraphMode::kPartitions;
  uint32_t num_graphs_ = 0;  // ever
  std::unordered_map<CUgraphExec, std::unique_ptr<Exec>> execs_;
  // Of partitions, for a stream of the program's and its priority: more of the program's streams do with one.
  static constexpr size_t kMostStreamsWithOthers = 8;
  std::map<std::pair<const Stream*, int>, std::vector<LaunchStream>> others_;
  std::map<int, std::unique_ptr<LaunchTimer>> timers_;  // by device
  // Of a session whose graphs are spread.
  struct SpreadParts {
    SpreadParts(SessionState& session, const SpreadMemory& spread);
    const WindowMemory memory;
    AccessFinder finder;
    GraphMirrors mirrors;
  };
  GraphSpread::Place PlaceOf(const SpreadReading& reading, CUcontext context);
  std::unique_ptr<SpreadParts> spread_;  // null before the first graph that may be
  TimePoint published_at_{};
};

}  // namespace tally::server
