// Coarsening: puts the tasks of a graph into partitions, so that a few graphs are launched in place of many tasks.
//
//      [a]->[b]->[c]                 partition 0: a b d e
//      [d]->[e]--^  `->[f]           partition 1: c f             one edge: 0 -> 1
//
// A partition is a convex part of the graph: no way leads out of it and back in, so it runs as one CUDA graph once the
// partitions before it are done. More than that holds: edges between partitions go from lower numbers to higher ones
// only. So no two partitions ever wait for each other, and their numbers are an order to run them in.
//
// How: tasks are looked at one by one in an order of the graph. A task may join any partition whose number is not below
// those of the partitions that it waits for; if none of these has room, it begins a new one, with the next number.
//
// A step per task and edge. Source: MUSTARD (3.2 GetSubgraphs, with dagP's acyclic partitioning for the hard cases).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "scheduler/taskgraph/task_graph.h"

namespace tally::scheduler {

enum class PartitionShape : uint8_t {
  // Level by level, branches side by side in one partition: the fewest partitions, for one GPU. They follow one
  // another.
  kLevels,
  // Along branches, each in partitions of its own: the fewest edges between partitions, for several GPUs.
  kBranches,
};

struct CoarseningLimits {
  PartitionShape shape = PartitionShape::kLevels;
  size_t most_tasks = 256;  // of a partition; at least 1. Segments of 256 empty nodes cost little on an H200
  // Of a partition, one task after another; a task that takes longer is alone in its partition. 0: one task each.
  uint64_t target_ns = UINT64_MAX;
};

struct Partition {
  std::vector<TaskId> tasks;  // in an order of the graph; at least one
  uint64_t cost_ns = 0;       // one task after another
  bool is_pinned = false;     // one of its tasks is. By branches such tasks share no partition with others
};

struct Coarsening {
  std::vector<Partition> partitions;   // each behind all that it waits for
  std::vector<GraphEdge> edges;        // between partitions, by number: from < to; sorted, each once
  std::vector<uint32_t> partition_of;  // by task
};

Coarsening Coarsen(const TaskGraph& graph, const CoarseningLimits& limits);

// The partitions as tasks of a graph. Each touches what its tasks touch; if that is more than kMostPartitionAccesses
// pieces of memory, or if one of them may do anything, it may do anything.
constexpr size_t kMostPartitionAccesses = 1024;
TaskGraph GraphOfPartitions(const TaskGraph& graph, const Coarsening& coarsening);

}  // namespace tally::scheduler
