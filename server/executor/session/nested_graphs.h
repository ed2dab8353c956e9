// Graphs that belong to a node of another graph: child graphs, whether cloned or moved into it, and the bodies of
// conditional nodes. They go with their node, so the program may use them but not end them; and whoever forgets a graph
// has to forget all that is in it, however deep.
//
// Guarded by the session's sequencer. Known here are those that the client has a name for.
#pragma once

#include <cuda.h>

#include <map>
#include <span>
#include <vector>

#include "server/executor/driver/driver_table.h"

namespace tally::server {

class NestedGraphs {
 public:
  enum class Kind { kClone, kMoved, kBody };
  // The graphs (with the one asked for) and nodes (likewise) that go at the same time.
  struct Contents {
    std::vector<CUgraph> graphs;
    std::vector<CUgraphNode> nodes;
  };

  explicit NestedGraphs(const DriverTable& driver) : driver_(driver) {}

  // A graph that is known already stays what it was.
  void Add(CUgraph graph, Kind kind) { kinds_.emplace(graph, kind); }
  void AddBodies(CUgraphNode node, std::span<const CUgraph> bodies);
  // It belongs to a node: not the program's to destroy or to give away.
  bool Contains(CUgraph graph) const { return kinds_.contains(graph); }
  bool IsMoved(CUgraph graph) const;
  bool empty() const { return kinds_.empty(); }

  // Asks the driver, so before it destroys anything.
  Contents ContentsOf(CUgraph graph) const;
  Contents ContentsOf(CUgraphNode node) const;
  void Forget(const Contents& gone);

 private:
  Contents WithAllBelow(Contents found) const;
  std::vector<CUgraphNode> NodesOf(CUgraph graph) const;
  std::vector<CUgraph> GraphsOf(CUgraphNode node) const;

  const DriverTable& driver_;
  std::map<CUgraph, Kind> kinds_;
  std::map<CUgraphNode, std::vector<CUgraph>> bodies_;  // the driver tells them only when the node is made
};

}  // namespace tally::server
