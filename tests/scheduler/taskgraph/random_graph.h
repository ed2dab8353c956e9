// Graphs of random shape: edges only, all costs and accesses are the test's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "scheduler/taskgraph/task_graph.h"

namespace tally::scheduler {

// Up to `most_before` edges to each task, from any earlier ones; names are shuffled, so a number says nothing of the
// order.
inline std::vector<GraphEdge> RandomEdges(std::mt19937& random, uint32_t num_tasks, uint32_t most_before) {
  std::vector<uint32_t> names(num_tasks);
  for (uint32_t i = 0; i < num_tasks; ++i) names[i] = i;
  std::ranges::shuffle(names, random);
  std::vector<GraphEdge> edges;
  for (uint32_t to = 1; to < num_tasks; ++to) {
    const uint32_t num_before = static_cast<uint32_t>(random() % (most_before + 1));
    for (uint32_t i = 0; i < num_before; ++i) edges.push_back({names[random() % to], names[to]});
  }
  return edges;
}

// [a][b]: a comes before b, by whatever way.
using Order = std::vector<std::vector<bool>>;
inline Order OrderOf(const TaskGraph& graph) {
  Order order(graph.size(), std::vector<bool>(graph.size()));
  for (size_t i = graph.size(); i-- > 0;) {
    const TaskId id = graph.order()[i];
    for (const TaskId next : graph.behind(id)) {
      order[id][next] = true;
      for (TaskId later = 0; later < graph.size(); ++later) {
        if (order[next][later]) order[id][later] = true;
      }
    }
  }
  return order;
}

}  // namespace tally::scheduler
