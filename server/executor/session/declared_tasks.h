// Tasks of graphs as a session's program has declared them while it captured these (include/tally/taskgraph.h): every
// node that comes into the graph between a begin and its end, on whatever stream of the capture.
//
//      Begin(stream, graph, boxes)    nodes 0 to 4 are there
//      ... the program captures ...   nodes 5, 6
//      End(stream, graph)             task: nodes 5, 6
//
// Bounded: kMostTasks of a graph; what is beyond that is not declared. Guarded by the session's sequencer.
#pragma once

#include <cuda.h>

#include <map>
#include <set>
#include <span>
#include <vector>

#include "server/executor/driver/driver_table.h"
#include "server/executor/session/declared_task.h"

namespace tally::server {

class DeclaredTasks {
 public:
  static constexpr size_t kMostTasks = 20'000;

  // On a stream that is being captured into `graph`. CUDA_ERROR_INVALID_VALUE: one has begun there.
  CUresult Begin(const DriverTable& driver, CUstream stream, CUgraph graph, DeclaredTask task);
  // CUDA_ERROR_INVALID_VALUE: none has begun there, or in another capture.
  CUresult End(const DriverTable& driver, CUstream stream, CUgraph graph);
  // Valid until the next call. Those that have not ended are not among them.
  std::span<const DeclaredTask> Of(CUgraph graph) const;
  // It is gone, or about to go.
  void Forget(CUgraph graph);

 private:
  struct OfGraph {
    std::vector<DeclaredTask> tasks;
    std::set<CUgraphNode> known;  // nodes that are somebody's, or were there before a begin
  };
  struct Open {
    CUgraph graph = nullptr;
    DeclaredTask task;
  };
  // All nodes that are not known yet; they are from now on.
  static CUresult TakeNew(const DriverTable& driver, CUgraph graph, OfGraph& of, std::vector<CUgraphNode>* found);

  std::map<CUgraph, OfGraph> graphs_;
  std::map<CUstream, Open> open_;
};

}  // namespace tally::server
