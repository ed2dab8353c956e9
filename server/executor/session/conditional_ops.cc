// Conditional nodes: bodies that a graph runs, once or again and again, as a value says that its kernels set.
#include "server/executor/session/graph_target.h"
#include "server/executor/session/operations.h"

namespace tally::server {

CUresult ServeCreateConditional(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  shm::CreateConditional request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  CUgraph graph = nullptr;
  if (const CUresult r = names.Find(shm::HandleKind::kGraph, request.graph, &graph); r != CUDA_SUCCESS) return r;
  if (served.driver().cuGraphConditionalHandleCreate == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUcontext context = nullptr;
  if (const CUresult r = NodeContext(served, &context); r != CUDA_SUCCESS) return r;
  CUgraphConditionalHandle conditional = 0;
  if (const CUresult r = served.driver().cuGraphConditionalHandleCreate(&conditional, graph, context,
                                                                        request.default_value, request.flags);
      r != CUDA_SUCCESS) {
    return r;
  }
  // The program's kernels get it as a parameter: it must be the driver's own number.
  served.session().graphs.conditionals[conditional] = request.graph;
  out.PutWord(conditional);
  return CUDA_SUCCESS;
}

CUresult ServeAddConditionalNode(ServedRequest& served, ClientNames& names, WireReader& in, WireWriter& out) {
  GraphTarget target;
  if (const CUresult r = ReadAddTarget(served, names, in, &target); r != CUDA_SUCCESS) return r;
  shm::ConditionalNode request{};
  in.TakeStruct(&request);
  if (!in.AtEnd()) return served.Malformed();
  SessionState& session = served.session();
  const auto known = session.graphs.conditionals.find(request.conditional);
  if (known == session.graphs.conditionals.end() || known->second != target.head.graph) return CUDA_ERROR_INVALID_VALUE;
  if (request.num_bodies == 0 || request.num_bodies > shm::kMaxConditionalBodies) return CUDA_ERROR_INVALID_VALUE;
  if (served.driver().cuGraphAddNode_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  parameters.conditional.handle = request.conditional;
  parameters.conditional.type = static_cast<CUgraphConditionalNodeType>(request.type);
  parameters.conditional.size = request.num_bodies;
  if (const CUresult r = NodeContext(served, &parameters.conditional.ctx); r != CUDA_SUCCESS) return r;
  CUgraphNode node = nullptr;
  if (const CUresult r = served.driver().cuGraphAddNode_v2(&node, target.graph, target.dependency_pointer(), nullptr,
                                                           target.dependencies.size(), &parameters);
      r != CUDA_SUCCESS) {
    return r;
  }
  if (parameters.conditional.phGraph_out == nullptr) return CUDA_ERROR_UNKNOWN;
  const std::span<const CUgraph> bodies(parameters.conditional.phGraph_out, request.num_bodies);
  session.graphs.nested.AddBodies(node, bodies);
  out.PutHandle(names, shm::HandleKind::kGraphNode, node);
  for (const CUgraph body : bodies) out.PutHandle(names, shm::HandleKind::kGraph, body);
  return CUDA_SUCCESS;
}

}  // namespace tally::server
