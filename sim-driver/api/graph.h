// Graphs: operations with edges, their clones, and executable graphs.
//
// One mutex, GraphMutex(), guards every graph and every capture: building graphs is rare and never waits. Lock order:
// GraphMutex(), then an executable graph's own mutex, then the timeline's.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "sim-driver/api/handle_table.h"
#include "sim-driver/api/operation.h"
#include "sim-driver/api/user_object.h"

namespace tally::sim_driver {

struct Graph;

struct GraphNode {
  CUgraphNode handle = nullptr;
  std::weak_ptr<Graph> graph;
  std::weak_ptr<Context> context;  // in which it runs
  Operation operation;
  CUgraphNode cloned_from = nullptr;  // the node that this one was cloned from, in the original's graph

  struct Edge {
    std::weak_ptr<GraphNode> from;
    CUgraphEdgeData data{};
  };
  std::vector<Edge> dependencies;
  std::vector<std::weak_ptr<GraphNode>> dependents;
};
using GraphNodePtr = std::shared_ptr<GraphNode>;

struct Graph : std::enable_shared_from_this<Graph> {
  ~Graph();
  CUgraph handle = nullptr;
  std::vector<GraphNodePtr> nodes;  // in order of creation
  bool is_owned_by_node = false;    // a child graph: not the program's to destroy
  bool was_moved = false;           // it was the program's before: not to be instantiated by itself, or added again
  std::vector<std::shared_ptr<UserReference>> user_references;
};
using GraphPtr = std::shared_ptr<Graph>;

struct ExecNode {
  CUgraphNode source = nullptr;  // the graph's node; null for a joint around a child graph
  std::weak_ptr<Context> context;
  Operation operation;
  std::vector<uint32_t> dependencies;  // indices, all smaller than the own one
  bool has_dependents = false;
  bool is_enabled = true;
};

struct GraphExec {
  CUgraphExec handle = nullptr;
  unsigned long long flags = 0;
  std::weak_ptr<Context> context;

  std::mutex mutex;
  std::vector<ExecNode> nodes;  // in an order of execution
  std::unordered_map<CUgraphNode, uint32_t> index;
  // Nodes of the child graph of a child-graph node, in the child's order.
  std::unordered_map<CUgraphNode, std::vector<CUgraphNode>> children;
  // For ExecUpdate: the top level's nodes in order of creation, with their dependencies.
  std::vector<CUgraphNode> top_level;
  std::vector<std::shared_ptr<UserReference>> user_references;
  // The last launch; the next one waits for it. Guarded by the timeline's mutex.
  TaskPtr last_launch;
};
using GraphExecPtr = std::shared_ptr<GraphExec>;

std::mutex& GraphMutex();
HandleTable<CUgraph, Graph>& Graphs();
HandleTable<CUgraphNode, GraphNode>& GraphNodes();
HandleTable<CUgraphExec, GraphExec>& GraphExecs();
// These fail with INVALID_VALUE, as native drivers do for unknown graph handles.
GraphPtr FindGraph(CUgraph handle);
GraphNodePtr FindNode(CUgraphNode handle);
GraphExecPtr FindExec(CUgraphExec handle);

// All below: call with GraphMutex() held, except where said.
GraphPtr CreateGraph();
void DestroyGraph(const GraphPtr& graph);
CUgraphNodeType NodeType(const Operation& operation);
// Fails with INVALID_VALUE for dependencies of another graph, or named twice.
void CheckDependencies(const GraphPtr& graph, std::span<const GraphNodePtr> dependencies);
// `edge_data` is empty or as long as `dependencies`.
GraphNodePtr AddNode(const GraphPtr& graph, std::span<const GraphNodePtr> dependencies,
                     std::span<const CUgraphEdgeData> edge_data, Operation operation, const ContextPtr& context);
void DestroyNode(const GraphNodePtr& node);
// Fails with INVALID_VALUE when the edge exists, would close a circle, or joins two graphs.
void AddEdge(const GraphNodePtr& from, const GraphNodePtr& to, const CUgraphEdgeData& edge_data);
void RemoveEdge(const GraphNodePtr& from, const GraphNodePtr& to);
// Whether `to` comes after `from`, or is it.
bool IsReachable(const GraphNodePtr& from, const GraphNodePtr& to);
GraphPtr CloneGraph(const GraphPtr& graph);
// What a child-graph node of `parent` gets: a clone of `child` or, moved, `child` itself.
GraphPtr AdoptGraph(const GraphPtr& parent, const GraphPtr& child, CUgraphChildGraphNodeOwnership ownership);

GraphExecPtr Instantiate(const GraphPtr& graph, unsigned long long flags, const ContextPtr& context);
// Locks by itself. Fails when the graph has gone bad (contexts destroyed).
void LaunchGraph(const GraphExecPtr& exec, const StreamUse& use);
// Replaces the operation of one node; same kind only.
void SetExecOperation(const GraphExecPtr& exec, CUgraphNode node, Operation operation);
void SetExecChild(const GraphExecPtr& exec, CUgraphNode node, const GraphPtr& child);
CUgraphExecUpdateResultInfo UpdateExec(const GraphExecPtr& exec, const GraphPtr& graph);

}  // namespace tally::sim_driver
