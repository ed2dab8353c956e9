// Graphs that belong to nodes of others, and the end of graphs and nodes, with which such graphs go.
#include <algorithm>

#include "server/executor/session/graph_target.h"
#include "server/executor/session/operations.h"

namespace tally::server {

CUresult ServeAddMovedGraphNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  GraphTarget target;
  if (const CUresult r = ReadAddTarget(served, names, in, &target); r != CUDA_SUCCESS) return r;
  shm::MovedGraphNode request{};
  in.TakeStruct(&request);
  std::vector<CUgraphEdgeData> edges(request.has_edge_data != 0 ? target.dependencies.size() : 0);
  for (CUgraphEdgeData& edge : edges) in.TakeStruct(&edge);
  if (!in.AtEnd()) return served.Malformed();
  CUgraph child = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraph, request.child, &child); r != CUDA_SUCCESS) return r;
  SessionState& session = served.session();
  if (served.driver().cuGraphAddNode_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  // It must be the program's to give away, and stay a tree.
  const NestedGraphs::Contents moved = session.graphs.ContentsOf(child);
  const bool holds_target = std::find(moved.graphs.begin(), moved.graphs.end(), target.graph) != moved.graphs.end();
  if (session.graphs.nested.Contains(child) || holds_target || session.IsCapturingInto(moved)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
  parameters.graph.graph = child;
  parameters.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  CUgraphNode node = nullptr;
  if (const CUresult r = served.driver().cuGraphAddNode_v2(&node, target.graph, target.dependency_pointer(),
                                                           edges.empty() ? nullptr : edges.data(),
                                                           target.dependencies.size(), &parameters);
      r != CUDA_SUCCESS) {
    return r;
  }
  // Handles of the graph and of its nodes stay what they are.
  session.graphs.nested.Add(child, NestedGraphs::Kind::kMoved);
  session.graphs.memory.OnMoved(child, target.graph);
  return PutNode(names, CUDA_SUCCESS, node, out);
}

// What goes with the graph is asked for before and forgotten after.
CUresult ServeDestroyGraph(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  CUgraph graph = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraph, handle, &graph); r != CUDA_SUCCESS) return r;
  SessionState& session = served.session();
  if (session.graphs.nested.Contains(graph)) return CUDA_ERROR_INVALID_VALUE;
  const NestedGraphs::Contents contents = session.graphs.ContentsOf(graph);
  if (session.IsCapturingInto(contents)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = served.driver().cuGraphDestroy(graph); r != CUDA_SUCCESS) return r;
  session.graphs.Forget(contents);
  return CUDA_SUCCESS;
}

CUresult ServeDestroyNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter&) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  if (served.driver().cuGraphDestroyNode == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraphNode node = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraphNode, handle, &node); r != CUDA_SUCCESS) return r;
  SessionState& session = served.session();
  const NestedGraphs::Contents contents = session.graphs.nested.ContentsOf(node);
  if (session.IsCapturingInto(contents)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = served.driver().cuGraphDestroyNode(node); r != CUDA_SUCCESS) return r;
  session.graphs.Forget(contents);
  return CUDA_SUCCESS;
}

CUresult ServeGetChildGraph(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  const uint64_t handle = in.TakeWord();
  if (!in.AtEnd()) return served.Malformed();
  if (served.driver().cuGraphChildGraphNodeGetGraph == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraphNode node = nullptr;
  CUgraph graph = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraphNode, handle, &node); r != CUDA_SUCCESS) return r;
  if (const CUresult r = served.driver().cuGraphChildGraphNodeGetGraph(node, &graph); r != CUDA_SUCCESS) return r;
  served.session().graphs.nested.Add(graph, NestedGraphs::Kind::kClone);
  out.PutHandle(names, shm::HandleKind::kGraph, graph);
  return CUDA_SUCCESS;
}

}  // namespace tally::server
