// Graphs: structure, instantiation, launch, update; user objects.
#include "sim-driver/api/graph.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "sim-driver/api/entry/entry.h"
#include "sim-driver/api/node_params.h"

using namespace tally::sim_driver;

namespace {

constexpr unsigned long long kKnownInstantiateFlags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                                      CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                                      CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

struct Edge {
  CUgraphNode from;
  CUgraphNode to;
  CUgraphEdgeData data;
};

// The convention of all list queries: without an array the count; with one, as many as fit and nulls behind them.
template <typename Item, typename Get, typename Value>
void PutList(const std::vector<Item>& items, Value* out, size_t capacity, Get get, Value nothing) {
  if (out == nullptr) return;
  for (size_t i = 0; i < capacity; ++i) out[i] = i < items.size() ? get(items[i]) : nothing;
}

void PutEdges(const std::vector<Edge>& edges, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
              size_t* count) {
  RequireOut(count);
  const size_t capacity = *count;
  if (from == nullptr && to == nullptr && data == nullptr) {
    *count = edges.size();
    return;
  }
  PutList(
      edges, from, capacity, [](const Edge& edge) { return edge.from; }, CUgraphNode{nullptr});
  PutList(
      edges, to, capacity, [](const Edge& edge) { return edge.to; }, CUgraphNode{nullptr});
  PutList(
      edges, data, capacity, [](const Edge& edge) { return edge.data; }, CUgraphEdgeData{});
  *count = std::min(capacity, edges.size());
}

// Without room for edge data, edges that carry some must not be reported as plain ones.
void RequirePlain(const std::vector<Edge>& edges) {
  const CUgraphEdgeData plain{};
  for (const Edge& edge : edges) {
    Require(std::memcmp(&edge.data, &plain, sizeof plain) == 0, CUDA_ERROR_LOSSY_QUERY);
  }
}

std::vector<Edge> EdgesInto(const GraphNodePtr& node) {
  std::vector<Edge> edges;
  for (const GraphNode::Edge& edge : node->dependencies) {
    if (const GraphNodePtr from = edge.from.lock()) edges.push_back({from->handle, node->handle, edge.data});
  }
  return edges;
}

std::vector<Edge> EdgesOutOf(const GraphNodePtr& node) {
  std::vector<Edge> edges;
  for (const auto& dependent : node->dependents) {
    const GraphNodePtr to = dependent.lock();
    if (!to) continue;
    for (const Edge& edge : EdgesInto(to)) {
      if (edge.from == node->handle) edges.push_back(edge);
    }
  }
  return edges;
}

std::vector<Edge> EdgesOf(const GraphPtr& graph) {
  std::vector<Edge> edges;
  for (const GraphNodePtr& node : graph->nodes) {
    for (const Edge& edge : EdgesInto(node)) edges.push_back(edge);
  }
  return edges;
}

void PutNodes(const std::vector<GraphNodePtr>& nodes, CUgraphNode* out, size_t* count) {
  RequireOut(count);
  const size_t capacity = *count;
  if (out == nullptr) {
    *count = nodes.size();
    return;
  }
  PutList(
      nodes, out, capacity, [](const GraphNodePtr& node) { return node->handle; }, CUgraphNode{nullptr});
  *count = std::min(capacity, nodes.size());
}

void ChangeEdges(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,
                 size_t count, bool is_adding) {
  RequireInitialized();
  const std::lock_guard lock(GraphMutex());
  const GraphPtr found = FindGraph(graph);
  Require(count == 0 || (from != nullptr && to != nullptr), CUDA_ERROR_INVALID_VALUE);
  for (size_t i = 0; i < count; ++i) {
    const GraphNodePtr first = FindNode(from[i]);
    const GraphNodePtr second = FindNode(to[i]);
    Require(first->graph.lock() == found && second->graph.lock() == found, CUDA_ERROR_INVALID_VALUE);
    if (is_adding) {
      AddEdge(first, second, data != nullptr ? data[i] : CUgraphEdgeData{});
    } else {
      RemoveEdge(first, second);
    }
  }
}

GraphExecPtr InstantiateFor(CUgraph graph, unsigned long long flags) {
  const ContextPtr context = EnterContext();
  Require((flags & ~kKnownInstantiateFlags) == 0, (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0
                                                      ? CUDA_ERROR_NOT_SUPPORTED
                                                      : CUDA_ERROR_INVALID_VALUE);
  const std::lock_guard lock(GraphMutex());
  const GraphPtr found = FindGraph(graph);
  Require(!found->was_moved, CUDA_ERROR_INVALID_VALUE);
  return Instantiate(found, flags, context);
}

// Changes one node of an executable graph. `make(context)` runs under GraphMutex().
template <typename Make>
void SetInExec(CUgraphExec exec, CUgraphNode node, Make make) {
  RequireInitialized();
  const std::lock_guard lock(GraphMutex());
  const GraphExecPtr found = FindExec(exec);
  ContextPtr context;
  SetExecOperation(found, node, make(context));
}

// Launch attributes are fixed at instantiation.
std::vector<CUlaunchAttribute> AttributesInExec(CUgraphExec exec, CUgraphNode node) {
  const GraphExecPtr found = FindExec(exec);
  const std::lock_guard lock(found->mutex);
  const auto index = found->index.find(node);
  Require(index != found->index.end(), CUDA_ERROR_INVALID_VALUE);
  const auto* const kernel = std::get_if<KernelOperation>(&found->nodes[index->second].operation);
  Require(kernel != nullptr, CUDA_ERROR_INVALID_VALUE);
  return kernel->attributes;
}

}  // namespace

TALLY_EXPORT CUresult CUDAAPI cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(phGraph);
    Require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    const std::lock_guard lock(GraphMutex());
    *phGraph = CreateGraph()->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphDestroy(CUgraph hGraph) {
  TALLY_ENTRY({
    RequireInitialized();
    const std::lock_guard lock(GraphMutex());
    const GraphPtr graph = FindGraph(hGraph);
    Require(!graph->is_owned_by_node, CUDA_ERROR_INVALID_VALUE);
    DestroyGraph(graph);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(phGraphClone);
    const std::lock_guard lock(GraphMutex());
    *phGraphClone = CloneGraph(FindGraph(originalGraph))->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                                     CUgraph hClonedGraph) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(phNode);
    const std::lock_guard lock(GraphMutex());
    FindNode(hOriginalNode);
    for (const GraphNodePtr& node : FindGraph(hClonedGraph)->nodes) {
      if (node->cloned_from != hOriginalNode) continue;
      *phNode = node->handle;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(type);
    const std::lock_guard lock(GraphMutex());
    *type = NodeType(FindNode(hNode)->operation);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode hNode) {
  TALLY_ENTRY({
    RequireInitialized();
    const std::lock_guard lock(GraphMutex());
    const GraphNodePtr node = FindNode(hNode);
    // Allocations and frees cannot be taken out again.
    const CUgraphNodeType type = NodeType(node->operation);
    Require(type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && type != CU_GRAPH_NODE_TYPE_MEM_FREE, CUDA_ERROR_NOT_SUPPORTED);
    DestroyNode(node);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  TALLY_ENTRY({
    RequireInitialized();
    const std::lock_guard lock(GraphMutex());
    PutNodes(FindGraph(hGraph)->nodes, nodes, numNodes);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  TALLY_ENTRY({
    RequireInitialized();
    const std::lock_guard lock(GraphMutex());
    std::vector<GraphNodePtr> roots;
    for (const GraphNodePtr& node : FindGraph(hGraph)->nodes) {
      if (node->dependencies.empty()) roots.push_back(node);
    }
    PutNodes(roots, rootNodes, numRootNodes);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                                                 CUgraphEdgeData* edgeData, size_t* numEdges) {
  TALLY_ENTRY({
    RequireInitialized();
    const std::lock_guard lock(GraphMutex());
    const std::vector<Edge> edges = EdgesOf(FindGraph(hGraph));
    if (edgeData == nullptr && from != nullptr) RequirePlain(edges);
    PutEdges(edges, from, to, edgeData, numEdges);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return cuGraphGetEdges_v2(hGraph, from, to, nullptr, numEdges);
}

TALLY_EXPORT CUresult CUDAAPI cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                                            CUgraphEdgeData* edgeData, size_t* numDependencies) {
  TALLY_ENTRY({
    RequireInitialized();
    const std::lock_guard lock(GraphMutex());
    const std::vector<Edge> edges = EdgesInto(FindNode(hNode));
    if (edgeData == nullptr && dependencies != nullptr) RequirePlain(edges);
    PutEdges(edges, dependencies, nullptr, edgeData, numDependencies);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                                         size_t* numDependencies) {
  return cuGraphNodeGetDependencies_v2(hNode, dependencies, nullptr, numDependencies);
}

TALLY_EXPORT CUresult CUDAAPI cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                                              CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  TALLY_ENTRY({
    RequireInitialized();
    const std::lock_guard lock(GraphMutex());
    const std::vector<Edge> edges = EdgesOutOf(FindNode(hNode));
    if (edgeData == nullptr && dependentNodes != nullptr) RequirePlain(edges);
    PutEdges(edges, nullptr, dependentNodes, edgeData, numDependentNodes);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                                           size_t* numDependentNodes) {
  return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, nullptr, numDependentNodes);
}

TALLY_EXPORT CUresult CUDAAPI cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                                        const CUgraphEdgeData* edgeData, size_t numDependencies) {
  TALLY_ENTRY({ ChangeEdges(hGraph, from, to, edgeData, numDependencies, true); });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                                     size_t numDependencies) {
  return cuGraphAddDependencies_v2(hGraph, from, to, nullptr, numDependencies);
}

TALLY_EXPORT CUresult CUDAAPI cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                                           const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                                           size_t numDependencies) {
  TALLY_ENTRY({ ChangeEdges(hGraph, from, to, edgeData, numDependencies, false); });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                                        size_t numDependencies) {
  return cuGraphRemoveDependencies_v2(hGraph, from, to, nullptr, numDependencies);
}

TALLY_EXPORT CUresult CUDAAPI cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(path);
    std::ofstream file(path);
    const std::lock_guard lock(GraphMutex());
    const GraphPtr graph = FindGraph(hGraph);
    file << "digraph dot {\n";
    for (size_t i = 0; i < graph->nodes.size(); ++i) {
      file << "  \"" << graph->nodes[i]->handle << "\" [label=\"" << i << " type "
           << static_cast<int>(NodeType(graph->nodes[i]->operation)) << "\"]\n";
    }
    for (const Edge& edge : EdgesOf(graph)) file << "  \"" << edge.from << "\" -> \"" << edge.to << "\"\n";
    file << "}\n";
    file.close();
    Require(!file.fail(), CUDA_ERROR_OPERATING_SYSTEM);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                                          unsigned long long flags) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(phGraphExec);
    *phGraphExec = InstantiateFor(hGraph, flags)->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                                           CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(phGraphExec);
    RequireOut(instantiateParams);
    instantiateParams->hErrNode_out = nullptr;
    instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    *phGraphExec = InstantiateFor(hGraph, instantiateParams->flags)->handle;
    instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                                                    char* logBuffer, size_t bufferSize) {
  if (phErrorNode != nullptr) *phErrorNode = nullptr;
  if (logBuffer != nullptr && bufferSize != 0) *logBuffer = '\0';
  return cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);
}

TALLY_EXPORT CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                                                 char* logBuffer, size_t bufferSize) {
  return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

TALLY_EXPORT CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(flags);
    *flags = FindExec(hGraphExec)->flags & ~static_cast<unsigned long long>(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec hGraphExec) {
  TALLY_ENTRY({
    RequireInitialized();
    const GraphExecPtr exec = FindExec(hGraphExec);
    // Its allocations may still be in use by the last launch.
    TaskPtr last;
    {
      const auto lock = Timeline::Get().Lock();
      last = exec->last_launch;
    }
    const bool has_allocations = std::any_of(exec->nodes.begin(), exec->nodes.end(), [](const ExecNode& node) {
      return std::holds_alternative<AllocOperation>(node.operation);
    });
    if (last && has_allocations) Timeline::Get().Wait(last);
    GraphExecs().Remove(hGraphExec);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
  TALLY_ENTRY({
    UseStream(hStream);
    FindExec(hGraph);  // nothing to prepare
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  TALLY_ENTRY({
    const StreamUse use = UseStream(hStream);
    const GraphExecPtr exec = FindExec(hGraph);
    // Launching into a capture would need the graph as a child node: refused.
    RefuseWhileCapturing(use.stream);
    LaunchGraph(exec, use);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                                const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    SetInExec(hGraphExec, hNode, [=](ContextPtr& context) {
      return KernelFromParams(*nodeParams, AttributesInExec(hGraphExec, hNode), context);
    });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                             const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    CUDA_KERNEL_NODE_PARAMS params{};
    std::memcpy(&params, nodeParams, sizeof *nodeParams);  // v2 appends to v1
    SetInExec(hGraphExec, hNode, [&](ContextPtr& context) {
      return KernelFromParams(params, AttributesInExec(hGraphExec, hNode), context);
    });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                             const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  TALLY_ENTRY({
    RequireOut(copyParams);
    SetInExec(hGraphExec, hNode, [=](ContextPtr& context) { return CopyFromParams(*copyParams, ctx, context); });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                             const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                                                             CUcontext ctx) {
  TALLY_ENTRY({
    RequireOut(memsetParams);
    SetInExec(hGraphExec, hNode, [=](ContextPtr& context) { return MemsetFromParams(*memsetParams, ctx, context); });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                           const CUDA_HOST_NODE_PARAMS* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    SetInExec(hGraphExec, hNode, [=](ContextPtr&) { return HostFromParams(*nodeParams); });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                                 CUgraph childGraph) {
  TALLY_ENTRY({
    RequireInitialized();
    const std::lock_guard lock(GraphMutex());
    SetExecChild(FindExec(hGraphExec), hNode, FindGraph(childGraph));
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                                 CUevent event) {
  TALLY_ENTRY({ SetInExec(hGraphExec, hNode, [=](ContextPtr&) { return EventRecordOperation{FindEvent(event)}; }); });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                               CUevent event) {
  TALLY_ENTRY({ SetInExec(hGraphExec, hNode, [=](ContextPtr&) { return EventWaitOperation{FindEvent(event)}; }); });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                                 const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    SetInExec(hGraphExec, hNode, [=](ContextPtr& context) { return MemOpsFromParams(*nodeParams, context); });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                       CUgraphNodeParams* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    if (nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH) {
      return cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, nodeParams->graph.graph);
    }
    Require(nodeParams->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && nodeParams->type != CU_GRAPH_NODE_TYPE_MEM_FREE,
            CUDA_ERROR_NOT_SUPPORTED);
    SetInExec(hGraphExec, hNode,
              [=](ContextPtr& context) { return OperationFromParams(*nodeParams, nullptr, context); });
    return CUDA_SUCCESS;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  TALLY_ENTRY({
    RequireInitialized();
    const GraphExecPtr exec = FindExec(hGraphExec);
    const std::lock_guard lock(exec->mutex);
    const auto index = exec->index.find(hNode);
    Require(index != exec->index.end(), CUDA_ERROR_INVALID_VALUE);
    ExecNode& node = exec->nodes[index->second];
    const CUgraphNodeType type = NodeType(node.operation);
    Require(type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_MEMCPY,
            CUDA_ERROR_INVALID_VALUE);
    node.is_enabled = isEnabled != 0;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                    unsigned int* isEnabled) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(isEnabled);
    const GraphExecPtr exec = FindExec(hGraphExec);
    const std::lock_guard lock(exec->mutex);
    const auto index = exec->index.find(hNode);
    Require(index != exec->index.end(), CUDA_ERROR_INVALID_VALUE);
    *isEnabled = exec->nodes[index->second].is_enabled ? 1 : 0;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                                   CUgraphExecUpdateResultInfo* resultInfo) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(resultInfo);
    const std::lock_guard lock(GraphMutex());
    const GraphPtr graph = FindGraph(hGraph);
    Require(!graph->was_moved, CUDA_ERROR_INVALID_VALUE);
    *resultInfo = UpdateExec(FindExec(hGraphExec), graph);
    Require(resultInfo->result == CU_GRAPH_EXEC_UPDATE_SUCCESS, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                                                CUgraphExecUpdateResult* updateResult_out) {
  CUgraphExecUpdateResultInfo result{};
  result.result = CU_GRAPH_EXEC_UPDATE_ERROR;
  const CUresult code = cuGraphExecUpdate_v2(hGraphExec, hGraph, &result);
  if (hErrorNode_out != nullptr) *hErrorNode_out = result.errorNode;
  if (updateResult_out != nullptr) *updateResult_out = result.result;
  return code;
}

TALLY_EXPORT CUresult CUDAAPI cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                                                 unsigned int initialRefcount, unsigned int flags) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(object_out);
    Require(destroy != nullptr && initialRefcount != 0 && flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC,
            CUDA_ERROR_INVALID_VALUE);
    *object_out = CreateUserObject(destroy, ptr, initialRefcount)->handle;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuUserObjectRetain(CUuserObject object, unsigned int count) {
  TALLY_ENTRY({
    RequireInitialized();
    Require(count != 0, CUDA_ERROR_INVALID_VALUE);
    FindUserObject(object)->Retain(count);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned int count) {
  TALLY_ENTRY({
    RequireInitialized();
    Require(count != 0, CUDA_ERROR_INVALID_VALUE);
    ReleaseUserObject(FindUserObject(object), count);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                                      unsigned int flags) {
  TALLY_ENTRY({
    RequireInitialized();
    Require(count != 0 && (flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) == 0, CUDA_ERROR_INVALID_VALUE);
    const std::lock_guard lock(GraphMutex());
    const GraphPtr found = FindGraph(graph);
    auto held = FindUserObject(object);
    if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) held->Retain(count);
    found->user_references.push_back(std::make_shared<UserReference>(std::move(held), count));
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  TALLY_ENTRY({
    RequireInitialized();
    Require(count != 0, CUDA_ERROR_INVALID_VALUE);
    const std::lock_guard lock(GraphMutex());
    const GraphPtr found = FindGraph(graph);
    for (auto it = found->user_references.begin(); it != found->user_references.end(); ++it) {
      // A holder that clones share is released as a whole or not at all.
      if ((*it)->object()->handle != object || (*it)->count() != count) continue;
      found->user_references.erase(it);
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}
