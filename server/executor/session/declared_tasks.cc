#include "server/executor/session/declared_tasks.h"

#include <utility>

#include "server/executor/issue/graph_tasks.h"

namespace tally::server {

CUresult DeclaredTasks::TakeNew(const DriverTable& driver, CUgraph graph, OfGraph& of,
                                std::vector<CUgraphNode>* found) {
  size_t num_nodes = 0;
  if (const CUresult r = driver.cuGraphGetNodes(graph, nullptr, &num_nodes); r != CUDA_SUCCESS) return r;
  // Such a graph is not looked into, so nothing need be known of it.
  if (num_nodes > GraphTasks::kMostTasks || num_nodes == of.known.size()) return CUDA_SUCCESS;
  std::vector<CUgraphNode> nodes(num_nodes);
  if (const CUresult r = driver.cuGraphGetNodes(graph, nodes.data(), &num_nodes); r != CUDA_SUCCESS) return r;
  for (const CUgraphNode node : nodes) {
    if (of.known.insert(node).second) found->push_back(node);
  }
  return CUDA_SUCCESS;
}

CUresult DeclaredTasks::Begin(const DriverTable& driver, CUstream stream, CUgraph graph, DeclaredTask task) {
  const auto open = open_.find(stream);
  // One that was left open in a capture that is over does not count any more.
  if (open != open_.end() && open->second.graph == graph) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> nobodys;
  if (const CUresult r = TakeNew(driver, graph, graphs_[graph], &nobodys); r != CUDA_SUCCESS) return r;
  open_[stream] = {graph, std::move(task)};
  return CUDA_SUCCESS;
}

CUresult DeclaredTasks::End(const DriverTable& driver, CUstream stream, CUgraph graph) {
  const auto open = open_.find(stream);
  if (open == open_.end() || open->second.graph != graph) return CUDA_ERROR_INVALID_VALUE;
  DeclaredTask task = std::move(open->second.task);
  open_.erase(open);
  OfGraph& of = graphs_[graph];
  if (const CUresult r = TakeNew(driver, graph, of, &task.nodes); r != CUDA_SUCCESS) return r;
  if (!task.nodes.empty() && of.tasks.size() < kMostTasks) of.tasks.push_back(std::move(task));
  return CUDA_SUCCESS;
}

std::span<const DeclaredTask> DeclaredTasks::Of(CUgraph graph) const {
  const auto found = graphs_.find(graph);
  return found == graphs_.end() ? std::span<const DeclaredTask>() : found->second.tasks;
}

void DeclaredTasks::Forget(CUgraph graph) {
  graphs_.erase(graph);
  std::erase_if(open_, [&](const auto& open) { return open.second.graph == graph; });
}

}  // namespace tally::server
