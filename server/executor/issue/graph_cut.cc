#include "server/executor/issue/graph_cut.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace tally::server {

using std::chrono::nanoseconds;

namespace {

size_t MostNodes(std::span<const nanoseconds> costs, size_t most) {
  if (const char* const asked = std::getenv("TALLY_GRAPH_PARTITION_NODES")) {
    return std::clamp<size_t>(std::strtoul(asked, nullptr, 10), 1, GraphTasks::kMostTasks);
  }
  const bool is_measured = std::ranges::any_of(costs, [](nanoseconds cost) { return cost.count() != 0; });
  return is_measured ? most : std::min(most, kMostUnmeasuredNodes);
}

// Level by level, so that what a partition has runs side by side; any stretch of that order is a partition.
std::vector<uint32_t> ByLevel(const GraphTasks& graph) {
  std::vector<uint32_t> level(graph.tasks.size());
  for (const scheduler::GraphEdge& edge : graph.edges) level[edge.to] = std::max(level[edge.to], level[edge.from] + 1);
  std::vector<uint32_t> order(graph.tasks.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](uint32_t task) { return level[task]; });
  return order;
}

}  // namespace

PartitionedGraph::Cut CutOf(const GraphTasks& graph, std::span<const nanoseconds> costs, nanoseconds longest,
                            size_t most_nodes) {
  const size_t most = MostNodes(costs, most_nodes);
  PartitionedGraph::Cut cut;
  cut.partition_of.resize(graph.tasks.size());
  size_t num_nodes = 0;
  nanoseconds sum{0};
  bool is_all_kernels = true;
  const auto close = [&] {
    if (num_nodes == 0) return;
    cut.is_alone.push_back(num_nodes == 1 && is_all_kernels);
    ++cut.num_partitions;
    num_nodes = 0;
    sum = nanoseconds(0);
    is_all_kernels = true;
  };
  for (const uint32_t task : ByLevel(graph)) {
    const nanoseconds cost = task < costs.size() ? costs[task] : nanoseconds(0);
    const bool fits = longest.count() == 0 || cost <= longest - std::min(sum, longest);
    if (num_nodes == most || (num_nodes != 0 && !fits)) close();
    cut.partition_of[task] = cut.num_partitions;
    ++num_nodes;
    sum += std::min(cost, nanoseconds(std::chrono::hours(1)));
    is_all_kernels = is_all_kernels && graph.tasks[task].kind == NodeKind::kKernel;
  }
  close();
  return cut;
}

}  // namespace tally::server
