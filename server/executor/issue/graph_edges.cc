#include "server/executor/issue/graph_edges.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tally::server {

using scheduler::GraphEdge;
using scheduler::GraphNodeAccesses;

namespace {

struct ReadGraph {
  std::vector<CUgraphNode> nodes;
  std::vector<GraphEdge> edges;  // by index
};

std::optional<ReadGraph> Read(const DriverTable& driver, CUgraph graph) {
  size_t num_nodes = 0, num_edges = 0;
  if (driver.cuGraphGetNodes(graph, nullptr, &num_nodes) != CUDA_SUCCESS) return std::nullopt;
  if (num_nodes < 2 || num_nodes > scheduler::kMostGraphNodes) return std::nullopt;
  if (driver.cuGraphGetEdges(graph, nullptr, nullptr, &num_edges) != CUDA_SUCCESS || num_edges == 0) {
    return std::nullopt;
  }
  ReadGraph read;
  read.nodes.resize(num_nodes);
  std::vector<CUgraphNode> from(num_edges), to(num_edges);
  if (driver.cuGraphGetNodes(graph, read.nodes.data(), &num_nodes) != CUDA_SUCCESS) return std::nullopt;
  // Fails where edges have data: it would be lost.
  if (driver.cuGraphGetEdges(graph, from.data(), to.data(), &num_edges) != CUDA_SUCCESS) return std::nullopt;
  std::unordered_map<CUgraphNode, uint32_t> index_of;
  for (uint32_t i = 0; i < num_nodes; ++i) index_of[read.nodes[i]] = i;
  for (size_t i = 0; i < num_edges; ++i) {
    const auto first = index_of.find(from[i]), second = index_of.find(to[i]);
    if (first == index_of.end() || second == index_of.end()) return std::nullopt;
    read.edges.push_back({first->second, second->second});
  }
  return read;
}

// Nothing: the graph is to be left alone.
std::optional<GraphNodeAccesses> AccessesOfKernel(const DriverTable& driver, CUgraphNode node,
                                                  const AccessesOfNode& accesses_of) {
  CUlaunchAttributeValue value{};
  const CUresult asked =
      driver.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value);
  if (asked == CUDA_SUCCESS && value.deviceUpdatableKernelNode.deviceUpdatable != 0) return std::nullopt;
  value = {};
  if (driver.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value) != CUDA_SUCCESS ||
      value.cooperative != 0) {
    return GraphNodeAccesses();
  }
  value = {};
  if (driver.cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value) == CUDA_SUCCESS &&
      value.clusterDim.x != 0) {
    return GraphNodeAccesses();
  }
  return accesses_of(node);
}

std::optional<std::vector<GraphNodeAccesses>> AccessesOf(const DriverTable& driver,
                                                         const std::vector<CUgraphNode>& nodes,
                                                         const AccessesOfNode& accesses_of) {
  std::vector<GraphNodeAccesses> all(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (driver.cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS) return std::nullopt;
    switch (type) {
      case CU_GRAPH_NODE_TYPE_KERNEL: {
        auto accesses = AccessesOfKernel(driver, nodes[i], accesses_of);
        if (!accesses) return std::nullopt;
        all[i] = std::move(*accesses);
        break;
      }
      case CU_GRAPH_NODE_TYPE_MEMCPY:
      case CU_GRAPH_NODE_TYPE_MEMSET:
        all[i] = accesses_of(nodes[i]);
        break;
      case CU_GRAPH_NODE_TYPE_HOST:
      case CU_GRAPH_NODE_TYPE_EMPTY:
        break;  // keeps its place
      default:
        return std::nullopt;
    }
  }
  return all;
}

// Those of `edges` that are not among `others`, as the driver takes them. Both sorted.
struct EdgesOfClone {
  std::vector<CUgraphNode> from, to;

  EdgesOfClone(const std::vector<GraphEdge>& edges, const std::vector<GraphEdge>& others,
               const std::vector<CUgraphNode>& nodes) {
    std::vector<GraphEdge> left;
    std::ranges::set_difference(edges, others, std::back_inserter(left));
    for (const GraphEdge& edge : left) {
      from.push_back(nodes[edge.from]);
      to.push_back(nodes[edge.to]);
    }
  }
};

bool Change(const DriverTable& driver, CUgraph clone, const ReadGraph& read, std::vector<GraphEdge> edges) {
  std::vector<CUgraphNode> nodes(read.nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (driver.cuGraphNodeFindInClone(&nodes[i], read.nodes[i], clone) != CUDA_SUCCESS) return false;
  }
  std::vector<GraphEdge> had = read.edges;
  std::ranges::sort(had);
  std::ranges::sort(edges);
  const EdgesOfClone gone(had, edges, nodes), added(edges, had, nodes);
  if (!gone.from.empty() &&
      driver.cuGraphRemoveDependencies(clone, gone.from.data(), gone.to.data(), gone.from.size()) != CUDA_SUCCESS) {
    return false;
  }
  return added.from.empty() ||
         driver.cuGraphAddDependencies(clone, added.from.data(), added.to.data(), added.from.size()) == CUDA_SUCCESS;
}

}  // namespace

CUgraph CloneWithTrueEdges(const DriverTable& driver, CUgraph graph, const AccessesOfNode& accesses_of) {
  if (driver.cuGraphGetEdges == nullptr || driver.cuGraphKernelNodeGetAttribute == nullptr ||
      driver.cuGraphClone == nullptr || driver.cuGraphNodeFindInClone == nullptr ||
      driver.cuGraphRemoveDependencies == nullptr || driver.cuGraphAddDependencies == nullptr) {
    return nullptr;
  }
  const auto read = Read(driver, graph);
  if (!read) return nullptr;
  const auto accesses = AccessesOf(driver, read->nodes, accesses_of);
  if (!accesses) return nullptr;
  auto edges = scheduler::TrueEdges(*accesses, read->edges);
  if (!edges) return nullptr;
  CUgraph clone = nullptr;
  if (driver.cuGraphClone(&clone, graph) != CUDA_SUCCESS) return nullptr;
  if (Change(driver, clone, *read, std::move(*edges))) return clone;
  driver.cuGraphDestroy(clone);
  return nullptr;
}

}  // namespace tally::server
