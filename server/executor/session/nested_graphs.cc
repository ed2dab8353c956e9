#include "server/executor/session/nested_graphs.h"

#include <algorithm>

namespace tally::server {

void NestedGraphs::AddBodies(CUgraphNode node, std::span<const CUgraph> bodies) {
  bodies_[node].assign(bodies.begin(), bodies.end());
  for (const CUgraph body : bodies) Add(body, Kind::kBody);
}

bool NestedGraphs::IsMoved(CUgraph graph) const {
  const auto found = kinds_.find(graph);
  return found != kinds_.end() && found->second == Kind::kMoved;
}

NestedGraphs::Contents NestedGraphs::ContentsOf(CUgraph graph) const { return WithAllBelow({{graph}, {}}); }
NestedGraphs::Contents NestedGraphs::ContentsOf(CUgraphNode node) const { return WithAllBelow({{}, {node}}); }

// Without recursion: how deep graphs are nested is the client's choice.
NestedGraphs::Contents NestedGraphs::WithAllBelow(Contents found) const {
  size_t next_graph = 0;
  size_t next_node = 0;
  while (next_graph < found.graphs.size() || next_node < found.nodes.size()) {
    if (next_node < found.nodes.size()) {
      const std::vector<CUgraph> graphs = GraphsOf(found.nodes[next_node++]);
      found.graphs.insert(found.graphs.end(), graphs.begin(), graphs.end());
    } else {
      const std::vector<CUgraphNode> nodes = NodesOf(found.graphs[next_graph++]);
      found.nodes.insert(found.nodes.end(), nodes.begin(), nodes.end());
    }
  }
  return found;
}

std::vector<CUgraphNode> NestedGraphs::NodesOf(CUgraph graph) const {
  size_t count = 0;
  if (driver_.cuGraphGetNodes == nullptr || driver_.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return {};
  std::vector<CUgraphNode> nodes(count);
  if (count != 0 && driver_.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return {};
  nodes.resize(std::min(count, nodes.size()));
  return nodes;
}

std::vector<CUgraph> NestedGraphs::GraphsOf(CUgraphNode node) const {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (driver_.cuGraphNodeGetType == nullptr || driver_.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return {};
  if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph child = nullptr;
    if (driver_.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) return {child};
  } else if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    if (const auto found = bodies_.find(node); found != bodies_.end()) return found->second;
  }
  return {};
}

void NestedGraphs::Forget(const Contents& gone) {
  for (const CUgraph graph : gone.graphs) kinds_.erase(graph);
  for (const CUgraphNode node : gone.nodes) bodies_.erase(node);
}

}  // namespace tally::server
