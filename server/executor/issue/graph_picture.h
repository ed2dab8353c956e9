// What people see of a graph that was cut: its nodes by partition, in Graphviz's language.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/window/true_edges.h"
#include "server/executor/issue/graph_tasks.h"
#include "server/executor/issue/partitioned_graph.h"

namespace tally::server {

// A copy of what it needs: the graph may change or go.
struct GraphOutline {
  struct Node {
    NodeKind kind = NodeKind::kEmpty;
    uint32_t partition = 0;
    uint32_t name = 0;  // place in `names`, of kernels
  };
  struct Partition {
    uint64_t duration_ns = 0;  // 0: not measured
    bool is_alone = false;
  };
  std::vector<Node> nodes;
  std::vector<scheduler::GraphEdge> edges;
  std::vector<std::string> names;
  std::vector<Partition> partitions;
};

// Of a graph with more nodes there is a picture of its partitions, without their nodes.
constexpr size_t kMostNodesDrawn = 2'000;

std::string GraphPicture(const GraphOutline& outline);

}  // namespace tally::server
