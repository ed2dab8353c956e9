// Executable graphs: instantiation, launch and update.
#include <algorithm>
#include <unordered_set>

#include "sim-driver/api/error.h"
#include "sim-driver/api/graph.h"

namespace tally::sim_driver {
namespace {

// Nodes so that each comes after all that it depends on; creation order decides between equals.
std::vector<GraphNodePtr> InExecutionOrder(const GraphPtr& graph) {
  std::unordered_map<const GraphNode*, size_t> unmet;
  std::vector<GraphNodePtr> order;
  for (const GraphNodePtr& node : graph->nodes) {
    unmet[node.get()] = node->dependencies.size();
    if (node->dependencies.empty()) order.push_back(node);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const auto& dependent : order[i]->dependents) {
      GraphNodePtr to = dependent.lock();
      if (to && --unmet[to.get()] == 0) order.push_back(std::move(to));
    }
  }
  Require(order.size() == graph->nodes.size(), CUDA_ERROR_INVALID_VALUE);
  return order;
}

// Appends the nodes of `graph`; those without dependencies depend on `entry`. Returns where each node ends.
std::unordered_map<const GraphNode*, uint32_t> AppendNodes(GraphExec& exec, const GraphPtr& graph,
                                                           const std::vector<uint32_t>& entry) {
  exec.user_references.insert(exec.user_references.end(), graph->user_references.begin(), graph->user_references.end());
  std::unordered_map<const GraphNode*, uint32_t> end;
  for (const GraphNodePtr& node : InExecutionOrder(graph)) {
    std::vector<uint32_t> dependencies;
    for (const GraphNode::Edge& edge : node->dependencies) dependencies.push_back(end.at(edge.from.lock().get()));
    if (dependencies.empty()) dependencies = entry;
    for (const uint32_t dependency : dependencies) exec.nodes[dependency].has_dependents = true;
    ExecNode made;
    made.source = node->handle;
    made.context = node->context;
    made.dependencies = std::move(dependencies);
    const auto* const child = std::get_if<ChildOperation>(&node->operation);
    if (child == nullptr) made.operation = node->operation;
    if (child != nullptr) made.operation = EmptyOperation{};
    const auto index = static_cast<uint32_t>(exec.nodes.size());
    exec.nodes.push_back(std::move(made));
    exec.index[node->handle] = index;
    end[node.get()] = index;
    if (child == nullptr) continue;
    const auto inner = AppendNodes(exec, child->graph, {index});
    ExecNode joint;
    joint.context = node->context;
    joint.operation = EmptyOperation{};
    joint.dependencies.push_back(index);
    for (const auto& [inner_node, inner_end] : inner) joint.dependencies.push_back(inner_end);
    for (const uint32_t dependency : joint.dependencies) exec.nodes[dependency].has_dependents = true;
    end[node.get()] = static_cast<uint32_t>(exec.nodes.size());
    exec.nodes.push_back(std::move(joint));
    auto& members = exec.children[node->handle];
    for (const GraphNodePtr& member : child->graph->nodes) members.push_back(member->handle);
  }
  return end;
}

}  // namespace

GraphExecPtr Instantiate(const GraphPtr& graph, unsigned long long flags, const ContextPtr& context) {
  auto exec = std::make_shared<GraphExec>();
  exec->flags = flags;
  exec->context = context;
  AppendNodes(*exec, graph, {});
  for (const GraphNodePtr& node : graph->nodes) exec->top_level.push_back(node->handle);
  const uint64_t value = NextHandleValue();
  exec->handle = reinterpret_cast<CUgraphExec>(value);
  GraphExecs().InsertAt(value, exec);
  return exec;
}

void LaunchGraph(const GraphExecPtr& exec, const StreamUse& use) {
  const std::lock_guard exec_lock(exec->mutex);
  std::vector<TaskPtr> tasks;
  tasks.reserve(exec->nodes.size());
  for (const ExecNode& node : exec->nodes) {
    ContextPtr context = node.context.lock();
    if (!context) context = use.context;
    Require(!context->is_destroyed(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    Operation operation = node.is_enabled ? node.operation : Operation(EmptyOperation{});
    tasks.push_back(MakeTask(std::move(operation), context, use.stream->priority));
  }
  auto head = std::make_shared<Task>();
  auto tail = std::make_shared<Task>();
  std::vector<TaskPtr> leaves{head};
  const auto lock = Timeline::Get().Lock();
  AppendLocked(use.stream, *use.context, head, std::span(&exec->last_launch, 1));
  for (size_t i = 0; i < tasks.size(); ++i) {
    const ExecNode& node = exec->nodes[i];
    std::vector<TaskPtr> after;
    for (const uint32_t dependency : node.dependencies) after.push_back(tasks[dependency]);
    if (after.empty()) after.push_back(head);
    if (const auto* const wait = std::get_if<EventWaitOperation>(&node.operation); wait && node.is_enabled) {
      after.push_back(wait->event->recorded);
    }
    if (const auto* const record = std::get_if<EventRecordOperation>(&node.operation); record && node.is_enabled) {
      record->event->recorded = tasks[i];
    }
    Timeline::Get().SubmitLocked(tasks[i], after);
    if (!node.has_dependents) leaves.push_back(tasks[i]);
  }
  AppendLocked(use.stream, *use.context, tail, leaves);
  exec->last_launch = std::move(tail);
}

void SetExecOperation(const GraphExecPtr& exec, CUgraphNode node, Operation operation) {
  const std::lock_guard lock(exec->mutex);
  const auto found = exec->index.find(node);
  Require(found != exec->index.end(), CUDA_ERROR_INVALID_VALUE);
  Operation& current = exec->nodes[found->second].operation;
  Require(NodeType(current) == NodeType(operation), CUDA_ERROR_INVALID_VALUE);
  current = std::move(operation);
}

namespace {

// Position by position, the two must have the same kinds and the same edges. `nodes` are handles of the instantiated
// graph's nodes in creation order.
CUgraphExecUpdateResultInfo UpdateLevel(GraphExec& exec, const std::vector<CUgraphNode>& nodes, const GraphPtr& graph) {
  CUgraphExecUpdateResultInfo result{};
  const auto refuse = [&result](CUgraphExecUpdateResult why, CUgraphNode node, CUgraphNode from = nullptr) {
    result.result = why;
    result.errorNode = node;
    result.errorFromNode = from;
    return result;
  };
  if (nodes.size() != graph->nodes.size()) return refuse(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr);
  std::unordered_map<CUgraphNode, CUgraphNode> twin;  // of the new graph -> of the instantiated one
  for (size_t i = 0; i < nodes.size(); ++i) twin[graph->nodes[i]->handle] = nodes[i];
  for (size_t i = 0; i < nodes.size(); ++i) {
    const GraphNodePtr& node = graph->nodes[i];
    const bool is_child = exec.children.contains(nodes[i]);
    const ExecNode& old = exec.nodes[exec.index.at(nodes[i])];
    const CUgraphNodeType old_type = is_child ? CU_GRAPH_NODE_TYPE_GRAPH : NodeType(old.operation);
    if (old_type != NodeType(node->operation)) {
      return refuse(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, node->handle);
    }
    // Edges: compare with what the instantiated nodes wait for (joints stand for child graphs).
    std::unordered_set<uint32_t> wanted;
    for (const GraphNode::Edge& edge : node->dependencies) {
      wanted.insert(exec.index.at(twin.at(edge.from.lock()->handle)));
    }
    size_t found = 0;
    for (uint32_t dependency : old.dependencies) {
      while (exec.nodes[dependency].source == nullptr) dependency = exec.nodes[dependency].dependencies.front();
      found += wanted.contains(dependency) ? 1 : 0;
    }
    const bool is_root_of_child = wanted.empty() && &nodes != &exec.top_level;
    if (!is_root_of_child && (found != wanted.size() || old.dependencies.size() != wanted.size())) {
      return refuse(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node->handle);
    }
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (const auto* const child = std::get_if<ChildOperation>(&graph->nodes[i]->operation)) {
      result = UpdateLevel(exec, exec.children.at(nodes[i]), child->graph);
      if (result.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
    } else {
      exec.nodes[exec.index.at(nodes[i])].operation = graph->nodes[i]->operation;
    }
  }
  return result;
}

}  // namespace

void SetExecChild(const GraphExecPtr& exec, CUgraphNode node, const GraphPtr& child) {
  const std::lock_guard lock(exec->mutex);
  const auto members = exec->children.find(node);
  Require(members != exec->children.end(), CUDA_ERROR_INVALID_VALUE);
  Require(UpdateLevel(*exec, members->second, child).result == CU_GRAPH_EXEC_UPDATE_SUCCESS, CUDA_ERROR_INVALID_VALUE);
}

CUgraphExecUpdateResultInfo UpdateExec(const GraphExecPtr& exec, const GraphPtr& graph) {
  const std::lock_guard lock(exec->mutex);
  return UpdateLevel(*exec, exec->top_level, graph);
}

}  // namespace tally::sim_driver
