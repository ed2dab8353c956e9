#include "server/executor/issue/graph_tasks.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

namespace tally::server {

using control::WholeReason;
using scheduler::GraphEdge;

namespace {

std::optional<NodeKind> KindOf(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return NodeKind::kKernel;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return NodeKind::kFill;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return NodeKind::kCopy;
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return NodeKind::kEmpty;
    default:
      return std::nullopt;
  }
}

// The device changes it, in the program's executable only.
bool IsDeviceUpdatable(const DriverTable& driver, CUgraphNode node) {
  CUlaunchAttributeValue value{};
  return driver.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value) ==
             CUDA_SUCCESS &&
         value.deviceUpdatableKernelNode.deviceUpdatable != 0;
}

WholeReason ReadNodes(const DriverTable& driver, CUgraph graph, std::vector<GraphTask>* tasks) {
  size_t num_nodes = 0;
  if (driver.cuGraphGetNodes(graph, nullptr, &num_nodes) != CUDA_SUCCESS) return WholeReason::kRefused;
  if (num_nodes > GraphTasks::kMostTasks) return WholeReason::kTooLarge;
  std::vector<CUgraphNode> nodes(num_nodes);
  if (num_nodes != 0 && driver.cuGraphGetNodes(graph, nodes.data(), &num_nodes) != CUDA_SUCCESS) {
    return WholeReason::kRefused;
  }
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return WholeReason::kRefused;
    const auto kind = KindOf(type);
    if (!kind) return WholeReason::kNodes;
    if (*kind == NodeKind::kKernel && IsDeviceUpdatable(driver, node)) return WholeReason::kNodes;
    tasks->push_back({node, *kind});
  }
  return WholeReason::kNone;
}

// Whether a full dependency may stand in its place: it then says no less. So it is with a programmatic one, on whose
// way captures put kernels of cuBLAS and cuDNN: "may begin early, and waits for the end by itself". One of the order of
// launches does not: the first may wait for something that the second does.
bool MayBeFull(const CUgraphEdgeData& edge) {
  if (edge.to_port != 0) return false;
  if (edge.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT) return edge.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT;
  return edge.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && edge.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
}

WholeReason ReadEdges(const DriverTable& driver, CUgraph graph, const std::vector<GraphTask>& tasks,
                      std::vector<GraphEdge>* edges) {
  size_t num_edges = 0;
  if (driver.cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &num_edges) != CUDA_SUCCESS) {
    return WholeReason::kRefused;
  }
  if (num_edges > GraphTasks::kMostEdges) return WholeReason::kTooLarge;
  if (num_edges == 0) return WholeReason::kNone;
  std::vector<CUgraphNode> from(num_edges), to(num_edges);
  std::vector<CUgraphEdgeData> data(num_edges);
  if (driver.cuGraphGetEdges_v2(graph, from.data(), to.data(), data.data(), &num_edges) != CUDA_SUCCESS) {
    return WholeReason::kRefused;
  }
  if (!std::ranges::all_of(data, MayBeFull)) return WholeReason::kEdges;
  std::unordered_map<CUgraphNode, uint32_t> index_of;
  for (uint32_t i = 0; i < tasks.size(); ++i) index_of[tasks[i].node] = i;
  for (size_t i = 0; i < num_edges; ++i) {
    const auto first = index_of.find(from[i]), second = index_of.find(to[i]);
    if (first == index_of.end() || second == index_of.end()) return WholeReason::kRefused;
    edges->push_back({first->second, second->second});
  }
  return WholeReason::kNone;
}

// Puts each behind those that it depends on. False: there is a cycle, which no driver lets be made.
bool Sort(GraphTasks* read) {
  const size_t count = read->tasks.size();
  std::vector<uint32_t> num_waiting_for(count);
  std::vector<std::vector<uint32_t>> followers(count);
  for (const GraphEdge& edge : read->edges) {
    ++num_waiting_for[edge.to];
    followers[edge.from].push_back(edge.to);
  }
  std::deque<uint32_t> ready;
  for (uint32_t i = 0; i < count; ++i) {
    if (num_waiting_for[i] == 0) ready.push_back(i);
  }
  std::vector<GraphTask> sorted;
  std::vector<uint32_t> place(count);
  while (!ready.empty()) {
    const uint32_t next = ready.front();
    ready.pop_front();
    place[next] = static_cast<uint32_t>(sorted.size());
    sorted.push_back(read->tasks[next]);
    for (const uint32_t follower : followers[next]) {
      if (--num_waiting_for[follower] == 0) ready.push_back(follower);
    }
  }
  if (sorted.size() != count) return false;
  read->tasks = std::move(sorted);
  for (GraphEdge& edge : read->edges) edge = {place[edge.from], place[edge.to]};
  std::ranges::sort(read->edges);
  const auto twice = std::ranges::unique(read->edges);
  read->edges.erase(twice.begin(), twice.end());
  return true;
}

}  // namespace

WholeReason ReadTasks(const DriverTable& driver, CUgraph graph, GraphTasks* tasks) {
  *tasks = {};
  if (driver.cuGraphGetEdges_v2 == nullptr || driver.cuGraphKernelNodeGetAttribute == nullptr ||
      driver.cuGraphKernelNodeCopyAttributes == nullptr || driver.cuGraphKernelNodeGetParams_v2 == nullptr ||
      driver.cuGraphAddKernelNode_v2 == nullptr || driver.cuGraphInstantiateWithFlags == nullptr) {
    return WholeReason::kRefused;
  }
  WholeReason reason = ReadNodes(driver, graph, &tasks->tasks);
  if (reason == WholeReason::kNone) reason = ReadEdges(driver, graph, tasks->tasks, &tasks->edges);
  if (reason == WholeReason::kNone && !Sort(tasks)) reason = WholeReason::kRefused;
  return reason;
}

CUresult AddTask(const DriverTable& driver, const GraphTask& task, CUgraph graph, CUcontext context,
                 std::span<const CUgraphNode> dependencies, CUgraphNode* node) {
  const CUgraphNode* const behind = dependencies.empty() ? nullptr : dependencies.data();
  const size_t count = dependencies.size();
  switch (task.kind) {
    case NodeKind::kKernel: {
      CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
      if (const CUresult r = driver.cuGraphKernelNodeGetParams_v2(task.node, &kernel); r != CUDA_SUCCESS) return r;
      if (const CUresult r = driver.cuGraphAddKernelNode_v2(node, graph, behind, count, &kernel); r != CUDA_SUCCESS) {
        return r;
      }
      return driver.cuGraphKernelNodeCopyAttributes(*node, task.node);
    }
    case NodeKind::kFill: {
      CUDA_MEMSET_NODE_PARAMS fill{};
      if (const CUresult r = driver.cuGraphMemsetNodeGetParams(task.node, &fill); r != CUDA_SUCCESS) return r;
      return driver.cuGraphAddMemsetNode(node, graph, behind, count, &fill, context);
    }
    case NodeKind::kCopy: {
      CUDA_MEMCPY3D copy{};
      if (const CUresult r = driver.cuGraphMemcpyNodeGetParams(task.node, &copy); r != CUDA_SUCCESS) return r;
      return driver.cuGraphAddMemcpyNode(node, graph, behind, count, &copy, context);
    }
    case NodeKind::kEmpty:
      return driver.cuGraphAddEmptyNode(node, graph, behind, count);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace tally::server
