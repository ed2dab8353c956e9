#include "sim-driver/api/graph.h"

#include <algorithm>
#include <unordered_set>

#include "sim-driver/api/error.h"

namespace tally::sim_driver {

std::mutex& GraphMutex() {
  static auto& mutex = *new std::mutex();
  return mutex;
}
HandleTable<CUgraph, Graph>& Graphs() {
  static auto& table = *new HandleTable<CUgraph, Graph>("graphs");
  return table;
}
HandleTable<CUgraphNode, GraphNode>& GraphNodes() {
  static auto& table = *new HandleTable<CUgraphNode, GraphNode>("graph-nodes");
  return table;
}
HandleTable<CUgraphExec, GraphExec>& GraphExecs() {
  static auto& table = *new HandleTable<CUgraphExec, GraphExec>("graph-execs");
  return table;
}

GraphPtr FindGraph(CUgraph handle) {
  GraphPtr graph = Graphs().Find(handle);
  Require(graph != nullptr, CUDA_ERROR_INVALID_VALUE);
  return graph;
}
GraphNodePtr FindNode(CUgraphNode handle) {
  GraphNodePtr node = GraphNodes().Find(handle);
  Require(node != nullptr, CUDA_ERROR_INVALID_VALUE);
  return node;
}
GraphExecPtr FindExec(CUgraphExec handle) {
  GraphExecPtr exec = GraphExecs().Find(handle);
  Require(exec != nullptr, CUDA_ERROR_INVALID_VALUE);
  return exec;
}

GraphPtr CreateGraph() {
  auto graph = std::make_shared<Graph>();
  const uint64_t value = NextHandleValue();
  graph->handle = reinterpret_cast<CUgraph>(value);
  Graphs().InsertAt(value, graph);
  return graph;
}

Graph::~Graph() {
  for (const GraphNodePtr& node : nodes) GraphNodes().Remove(node->handle);
}

void DestroyGraph(const GraphPtr& graph) {
  Graphs().Remove(graph->handle);
  for (const GraphNodePtr& node : graph->nodes) {
    GraphNodes().Remove(node->handle);
    if (const auto* const child = std::get_if<ChildOperation>(&node->operation)) DestroyGraph(child->graph);
  }
}

CUgraphNodeType NodeType(const Operation& operation) {
  struct Visitor {
    CUgraphNodeType operator()(const KernelOperation&) { return CU_GRAPH_NODE_TYPE_KERNEL; }
    CUgraphNodeType operator()(const CopyOperation&) { return CU_GRAPH_NODE_TYPE_MEMCPY; }
    CUgraphNodeType operator()(const MemsetOperation&) { return CU_GRAPH_NODE_TYPE_MEMSET; }
    CUgraphNodeType operator()(const HostOperation&) { return CU_GRAPH_NODE_TYPE_HOST; }
    CUgraphNodeType operator()(const CallbackOperation&) { return CU_GRAPH_NODE_TYPE_HOST; }
    CUgraphNodeType operator()(const EmptyOperation&) { return CU_GRAPH_NODE_TYPE_EMPTY; }
    CUgraphNodeType operator()(const EventRecordOperation&) { return CU_GRAPH_NODE_TYPE_EVENT_RECORD; }
    CUgraphNodeType operator()(const EventWaitOperation&) { return CU_GRAPH_NODE_TYPE_WAIT_EVENT; }
    CUgraphNodeType operator()(const AllocOperation&) { return CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
    CUgraphNodeType operator()(const FreeOperation&) { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
    CUgraphNodeType operator()(const MemOpsOperation&) { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
    CUgraphNodeType operator()(const ChildOperation&) { return CU_GRAPH_NODE_TYPE_GRAPH; }
  };
  return std::visit(Visitor{}, operation);
}

void CheckDependencies(const GraphPtr& graph, std::span<const GraphNodePtr> dependencies) {
  std::unordered_set<const GraphNode*> seen;
  for (const GraphNodePtr& from : dependencies) {
    Require(from && from->graph.lock() == graph && seen.insert(from.get()).second, CUDA_ERROR_INVALID_VALUE);
  }
}

GraphNodePtr AddNode(const GraphPtr& graph, std::span<const GraphNodePtr> dependencies,
                     std::span<const CUgraphEdgeData> edge_data, Operation operation, const ContextPtr& context) {
  CheckDependencies(graph, dependencies);
  auto node = std::make_shared<GraphNode>();
  node->graph = graph;
  node->context = context;
  node->operation = std::move(operation);
  for (size_t i = 0; i < dependencies.size(); ++i) {
    node->dependencies.push_back({dependencies[i], edge_data.empty() ? CUgraphEdgeData{} : edge_data[i]});
    dependencies[i]->dependents.push_back(node);
  }
  const uint64_t value = NextHandleValue();
  node->handle = reinterpret_cast<CUgraphNode>(value);
  GraphNodes().InsertAt(value, node);
  graph->nodes.push_back(node);
  return node;
}

void DestroyNode(const GraphNodePtr& node) {
  const GraphPtr graph = node->graph.lock();
  Require(graph != nullptr, CUDA_ERROR_INVALID_VALUE);
  for (const GraphNode::Edge& edge : std::vector(node->dependencies)) {
    if (const GraphNodePtr from = edge.from.lock()) RemoveEdge(from, node);
  }
  for (const auto& dependent : std::vector(node->dependents)) {
    if (const GraphNodePtr to = dependent.lock()) RemoveEdge(node, to);
  }
  if (const auto* const child = std::get_if<ChildOperation>(&node->operation)) DestroyGraph(child->graph);
  GraphNodes().Remove(node->handle);
  std::erase(graph->nodes, node);
}

bool IsReachable(const GraphNodePtr& from, const GraphNodePtr& to) {
  std::vector<GraphNodePtr> open{to};
  std::unordered_set<const GraphNode*> seen{to.get()};
  while (!open.empty()) {
    const GraphNodePtr node = std::move(open.back());
    open.pop_back();
    if (node == from) return true;
    for (const GraphNode::Edge& edge : node->dependencies) {
      GraphNodePtr before = edge.from.lock();
      if (before && seen.insert(before.get()).second) open.push_back(std::move(before));
    }
  }
  return false;
}

void AddEdge(const GraphNodePtr& from, const GraphNodePtr& to, const CUgraphEdgeData& edge_data) {
  Require(from != to && from->graph.lock() == to->graph.lock(), CUDA_ERROR_INVALID_VALUE);
  for (const GraphNode::Edge& edge : to->dependencies) {
    Require(edge.from.lock() != from, CUDA_ERROR_INVALID_VALUE);
  }
  Require(!IsReachable(to, from), CUDA_ERROR_INVALID_VALUE);
  to->dependencies.push_back({from, edge_data});
  from->dependents.push_back(to);
}

void RemoveEdge(const GraphNodePtr& from, const GraphNodePtr& to) {
  const size_t removed =
      std::erase_if(to->dependencies, [&from](const GraphNode::Edge& edge) { return edge.from.lock() == from; });
  Require(removed != 0, CUDA_ERROR_INVALID_VALUE);
  std::erase_if(from->dependents, [&to](const auto& dependent) { return dependent.lock() == to; });
}

GraphPtr CloneGraph(const GraphPtr& graph) {
  GraphPtr clone = CreateGraph();
  clone->user_references = graph->user_references;
  std::unordered_map<const GraphNode*, GraphNodePtr> twin;
  // Nodes may have been joined by later edges in any order: all nodes first, then the edges.
  for (const GraphNodePtr& node : graph->nodes) {
    Operation operation = node->operation;
    if (auto* const child = std::get_if<ChildOperation>(&operation)) {
      child->graph = CloneGraph(child->graph);
      child->graph->is_owned_by_node = true;
    }
    GraphNodePtr copy = AddNode(clone, {}, {}, std::move(operation), node->context.lock());
    copy->cloned_from = node->handle;
    twin[node.get()] = std::move(copy);
  }
  for (const GraphNodePtr& node : graph->nodes) {
    const GraphNodePtr& copy = twin[node.get()];
    for (const GraphNode::Edge& edge : node->dependencies) {
      const GraphNodePtr from = edge.from.lock();
      copy->dependencies.push_back({twin[from.get()], edge.data});
      twin[from.get()]->dependents.push_back(copy);
    }
  }
  return clone;
}

namespace {

bool IsMemoryNode(const GraphNodePtr& node) {
  return std::holds_alternative<AllocOperation>(node->operation) ||
         std::holds_alternative<FreeOperation>(node->operation);
}

bool Holds(const GraphPtr& graph, const GraphPtr& wanted) {
  return graph == wanted || std::any_of(graph->nodes.begin(), graph->nodes.end(), [&](const GraphNodePtr& node) {
           const auto* const child = std::get_if<ChildOperation>(&node->operation);
           return child != nullptr && Holds(child->graph, wanted);
         });
}

}  // namespace

GraphPtr AdoptGraph(const GraphPtr& parent, const GraphPtr& child, CUgraphChildGraphNodeOwnership ownership) {
  Require(child != parent && !child->was_moved, CUDA_ERROR_INVALID_VALUE);
  if (ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) {
    Require(std::none_of(child->nodes.begin(), child->nodes.end(), IsMemoryNode), CUDA_ERROR_NOT_SUPPORTED);
    GraphPtr clone = CloneGraph(child);
    clone->is_owned_by_node = true;
    return clone;
  }
  Require(ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE && !child->is_owned_by_node && !Holds(child, parent),
          CUDA_ERROR_INVALID_VALUE);
  child->is_owned_by_node = true;
  child->was_moved = true;
  return child;
}

}  // namespace tally::sim_driver
