// One executable graph of a session, and the ways in which it can be launched: as a whole, in partitions
// (graph_launches.h).
//
// Guarded by the session's sequencer; a context must be current, for the destructor as well.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/control/graph_figures.h"
#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/graph_picture.h"
#include "server/executor/issue/node_budget.h"
#include "server/executor/issue/partitioned_graph.h"
#include "server/executor/issue/sampled_times.h"
#include "server/executor/session/client_context.h"
#include "server/executor/session/declared_task.h"
#include "server/executor/session/graph_spread.h"

namespace tally::server {

class ServedRequest;

class GraphLaunchWays {
 public:
  // Each reads all nodes and makes all partitions anew.
  static constexpr int kMostCuts = 12;
  // Launches between a cut and the next: so often a partition is timed before it is judged.
  static constexpr uint64_t kLaunchesBeforeCut = 4;
  static constexpr uint64_t kUpdatesBeforeJudged = 8;

  GraphLaunchWays(const DriverTable& driver, uint32_t number) : driver_(driver), number_(number) {}
  ~GraphLaunchWays() { Drop(control::WholeReason::kNone); }
  GraphLaunchWays(const GraphLaunchWays&) = delete;
  GraphLaunchWays& operator=(const GraphLaunchWays&) = delete;

  // It does what `graph` says, from now on.
  void Adopt(ServedRequest& served, CUgraph graph, unsigned long long flags);
  void OnUpdated(ServedRequest& served, CUgraph graph);
  // Whole from now on, for good.
  void Drop(control::WholeReason reason);
  bool is_whole_for_good() const { return for_good_ != control::WholeReason::kNone; }
  control::WholeReason why_for_good() const { return for_good_; }
  // The clone may not be read again; partitions there are stay.
  void KeepWhatThereIs();
  // The node that stands for `node` of the program's graph; null: nobody knows.
  CUgraphNode NodeOfClone(CUgraphNode node) const;
  // It was set there and is to be in its partition.
  void Follow(CUgraphNode node, const std::function<CUresult(CUgraphExec, CUgraphNode)>& change);

  // What a cut is to be like.
  struct Limits {
    std::chrono::nanoseconds longest{0};  // of a partition
    bool is_forced = false;
    bool has_forms = false;      // a kernel may be launched alone
    bool are_all_alone = false;  // ... and all are that can be
    size_t most_streams = PartitionedGraph::kMostStreams;
  };
  // Cuts it if it has not been, or has to be again. kNone: there are partitions.
  control::WholeReason Prepare(ServedRequest& served, CUcontext context, const Limits& limits);

  const GraphTask& task(uint32_t index) const { return tasks_.tasks[index]; }
  // The record of a kernel that is launched alone; null: it cannot be read.
  const std::vector<std::byte>* RecordOf(ServedRequest& served, uint32_t task);
  // Whether all that are launched alone would be by themselves as they are in the graph.
  bool MayGoAlone(ServedRequest& served);

  // Null: it stays on its GPU. What is below goes with it.
  GraphSpread* spread() { return spread_.get(); }
  CUgraph clone() const { return clone_; }
  std::span<const DeclaredTask> declared() const { return declared_; }  // of nodes of the clone

  PartitionedGraph* partitions() { return partitions_.get(); }
  // Of one launch as a whole, as far as anything is known.
  std::chrono::nanoseconds whole_duration() const {
    return whole.duration().count() != 0 ? whole.duration() : estimated_whole;
  }
  control::GraphFigures Figures() const;
  const std::shared_ptr<const GraphOutline>& outline() const { return outline_; }
  void RefreshOutline();

  SampledTimes whole, partitioned;
  std::chrono::nanoseconds estimated_whole{0};  // as admission knows it
  uint64_t num_launches = 0;
  uint64_t num_partitioned = 0;
  control::WholeReason reason = control::WholeReason::kNone;  // of the last launch
  // Where it was launched last.
  const Stream* last_stream = nullptr;
  uint64_t last_handle = 0;   // of that stream: another one may have its address by now
  uint32_t last_context = 0;  // likewise
  bool was_cut = false;

 private:
  void DropPartitions();
  bool IsToBeCutAgain(const Limits& limits) const;
  // By task, as measured so far; zeros: nothing is known.
  std::vector<std::chrono::nanoseconds> Costs() const;
  control::WholeReason CutNow(ServedRequest& served, CUcontext context, const Limits& limits);
  void MakeOutline(const PartitionedGraph::Cut& cut);

  const DriverTable& driver_;
  const uint32_t number_;
  control::WholeReason for_good_ = control::WholeReason::kNone;
  size_t num_nodes_ = 0;
  unsigned long long flags_ = 0;
  CUgraph clone_ = nullptr;
  NodeShare clone_share_, partitions_share_;
  std::unique_ptr<GraphSpread> spread_;
  std::vector<DeclaredTask> declared_;
  GraphTasks tasks_;  // of the clone, once it was cut
  std::unique_ptr<PartitionedGraph> partitions_;
  std::map<uint32_t, std::vector<std::byte>> records_;  // of kernels that are launched alone, by task
  std::shared_ptr<const GraphOutline> outline_;
  int num_cuts_ = 0;
  uint64_t launches_at_cut_ = 0;
  uint64_t num_updates_ = 0;
  bool knew_duration_ = false;  // at the last cut
  bool was_one_partition_ = false;
};

}  // namespace tally::server
