// How a graph is cut into partitions: the planner (scheduler/taskgraph) asked with what an executor knows.
#pragma once

#include <chrono>
#include <span>

#include "server/executor/issue/graph_tasks.h"
#include "server/executor/issue/partitioned_graph.h"

namespace tally::server {

// Nodes of a partition, at most: an executable of so many costs little more than its nodes do (docs/task-graphs.md).
constexpr size_t kMostPartitionNodes = 256;
// The same while nobody knows how long they take.
constexpr size_t kMostUnmeasuredNodes = 64;

// `costs`: how long each task takes; zeros: nobody knows. `longest`: of a partition of several tasks. What is by itself
// is said to be alone, but for an empty node. In order (PartitionedGraph::IsInOrder). TALLY_GRAPH_PARTITION_NODES in
// the environment, for tests and measurements, says how many nodes a partition has at most.
PartitionedGraph::Cut CutOf(const GraphTasks& graph, std::span<const std::chrono::nanoseconds> costs,
                            std::chrono::nanoseconds longest, size_t most_nodes = kMostPartitionNodes);

}  // namespace tally::server
