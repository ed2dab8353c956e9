// A graph of a program as tasks: what may be cut into partitions, and which of them come behind which.
//
// Tasks are kernels, fills, copies and empty nodes. Whatever else a graph has, it is launched as a whole, and is never
// looked into.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/control/graph_figures.h"
#include "scheduler/window/true_edges.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {

enum class NodeKind : uint8_t { kKernel, kFill, kCopy, kEmpty };

struct GraphTask {
  CUgraphNode node = nullptr;  // the graph's
  NodeKind kind = NodeKind::kEmpty;
};

struct GraphTasks {
  static constexpr size_t kMostTasks = 20'000;  // of one graph
  static constexpr size_t kMostEdges = size_t{1} << 20;

  std::vector<GraphTask> tasks;             // each behind those that it depends on
  std::vector<scheduler::GraphEdge> edges;  // by index, from < to; sorted, none twice
};

// kNone: `tasks` is the graph. Else why it is to be launched as a whole. Of one that is too large no node is asked for.
control::WholeReason ReadTasks(const DriverTable& driver, CUgraph graph, GraphTasks* tasks);

// A new node of `graph` that does what the task does, behind `dependencies`. `context`: that copies and fills run in.
CUresult AddTask(const DriverTable& driver, const GraphTask& task, CUgraph graph, CUcontext context,
                 std::span<const CUgraphNode> dependencies, CUgraphNode* node);

}  // namespace tally::server
