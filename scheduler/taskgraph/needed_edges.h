// NeededEdges: the edges of a graph less those that its tasks' memory proves false. They keep the same bits.
//
//      submitted   a -> b -> c -> d        a writes x, b writes y, c reads x, d writes x
//      needed      a ------> c -> d        read after write, write after read; b runs beside them
//
// Only what was ordered stays ordered: two tasks that the program left unordered may be a race, or may be apart for a
// reason that nobody here knows. Of what was ordered, all stays that conflicts: reads after writes, writes after reads
// (MUSTARD tracks none of these), writes after writes. A task that may do anything stays behind all that came before
// it, and before all that came behind it. No edge is left that others imply.
//
// TrueEdges (scheduler/window) compares pairs within 256 tasks and is for graphs that stay one; here regions find who
// conflicts, so a factorisation of 1,500 tiles is looked at as a whole.
//
// Cost: a bit for each pair of tasks, twice, and a step for each use that is looked at, kMostSteps at most.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "scheduler/taskgraph/region_map.h"
#include "scheduler/taskgraph/task_graph.h"

namespace tally::scheduler {

constexpr size_t kMostTasksCompared = 16'384;  // 64 MB while it runs

struct NeededEdgesLimits {
  size_t most_steps = size_t{1} << 26;
  size_t most_edges = kMostTaskEdges;
};

// `regions`: of the graph's tasks. Nothing if it would be too much, or if the graph needs all that it has: then its own
// edges are good.
std::optional<std::vector<GraphEdge>> NeededEdges(const TaskGraph& graph, const RegionMap& regions,
                                                  const NeededEdgesLimits& limits = {});

}  // namespace tally::scheduler
