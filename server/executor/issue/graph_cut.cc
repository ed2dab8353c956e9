#include "server/executor/issue/graph_cut.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "scheduler/taskgraph/coarsening.h"
#include "scheduler/taskgraph/task_graph.h"

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

scheduler::TaskKind KindFor(NodeKind kind) {
  switch (kind) {
    case NodeKind::kKernel:
      return scheduler::TaskKind::kKernel;
    case NodeKind::kFill:
      return scheduler::TaskKind::kFill;
    case NodeKind::kCopy:
      return scheduler::TaskKind::kCopy;
    case NodeKind::kEmpty:
      break;
  }
  return scheduler::TaskKind::kOther;
}

}  // namespace

PartitionedGraph::Cut CutOf(const GraphTasks& graph, std::span<const nanoseconds> costs, nanoseconds longest,
                            size_t most_nodes) {
  std::vector<scheduler::Task> tasks(graph.tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].kind = KindFor(graph.tasks[i].kind);
    if (i < costs.size()) tasks[i].cost_ns = static_cast<uint64_t>(std::max(costs[i], nanoseconds(0)).count());
  }
  PartitionedGraph::Cut cut;
  const auto made = scheduler::TaskGraph::Make(std::move(tasks), graph.edges);
  if (!made) return cut;  // not from ReadTasks
  // Level by level: what a partition has runs side by side.
  scheduler::CoarseningLimits limits{.most_tasks = MostNodes(costs, most_nodes)};
  if (longest.count() > 0) limits.target_ns = static_cast<uint64_t>(longest.count());
  scheduler::Coarsening coarsening = scheduler::Coarsen(*made, limits);
  cut.num_partitions = static_cast<uint32_t>(coarsening.partitions.size());
  for (const scheduler::Partition& partition : coarsening.partitions) {
    cut.is_alone.push_back(partition.tasks.size() == 1 &&
                           graph.tasks[partition.tasks.front()].kind != NodeKind::kEmpty);
  }
  cut.partition_of = std::move(coarsening.partition_of);
  return cut;
}

}  // namespace tally::server
