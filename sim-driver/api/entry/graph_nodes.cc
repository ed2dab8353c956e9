// Graph nodes: adding each kind, reading and changing their parameters.
#include <cstring>

#include "sim-driver/api/copy.h"
#include "sim-driver/api/entry/entry.h"
#include "sim-driver/api/graph.h"
#include "sim-driver/api/launch.h"
#include "sim-driver/api/node_params.h"

using namespace tally::sim_driver;

namespace {

std::vector<GraphNodePtr> FindNodes(const CUgraphNode* handles, size_t count) {
  constexpr size_t kMaxDependencies = 1 << 24;
  Require(count <= kMaxDependencies && (count == 0 || handles != nullptr), CUDA_ERROR_INVALID_VALUE);
  std::vector<GraphNodePtr> nodes;
  for (size_t i = 0; i < count; ++i) nodes.push_back(FindNode(handles[i]));
  return nodes;
}

// `make(context)` returns the operation and may set the context. Runs under GraphMutex().
template <typename Make>
void Add(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* edge_data,
         size_t count, Make make) {
  RequireInitialized();
  RequireOut(out);
  const std::lock_guard lock(GraphMutex());
  const GraphPtr found = FindGraph(graph);
  const std::vector<GraphNodePtr> nodes = FindNodes(dependencies, count);
  CheckDependencies(found, nodes);
  ContextPtr context;
  Operation operation = make(context);
  const CUgraphNodeType type = NodeType(operation);
  const bool is_memory = type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
  Require(!is_memory || !found->is_owned_by_node, CUDA_ERROR_NOT_SUPPORTED);
  std::span<const CUgraphEdgeData> edges;
  if (edge_data != nullptr) edges = {edge_data, count};
  *out = AddNode(found, nodes, edges, std::move(operation), context)->handle;
}

// The node's operation of that kind. Under GraphMutex().
template <typename Kind>
Kind& OperationAs(CUgraphNode handle) {
  auto* const operation = std::get_if<Kind>(&FindNode(handle)->operation);
  Require(operation != nullptr, CUDA_ERROR_INVALID_VALUE);
  return *operation;
}

template <typename Make>
void Set(CUgraphNode handle, Make make) {
  RequireInitialized();
  const std::lock_guard lock(GraphMutex());
  const GraphNodePtr node = FindNode(handle);
  ContextPtr context = node->context.lock();
  Operation operation = make(context);
  Require(NodeType(operation) == NodeType(node->operation), CUDA_ERROR_INVALID_VALUE);
  node->operation = std::move(operation);
  node->context = context;
}

CUcontext ContextOf(CUgraphNode handle) {
  const ContextPtr context = FindNode(handle)->context.lock();
  return context ? context->handle() : nullptr;
}

// The attributes that the node has already stay when its parameters change.
std::vector<CUlaunchAttribute> AttributesOf(CUgraphNode handle) {
  return OperationAs<KernelOperation>(handle).attributes;
}

CUDA_KERNEL_NODE_PARAMS Wide(const CUDA_KERNEL_NODE_PARAMS_v1& old) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = old.func;
  params.gridDimX = old.gridDimX;
  params.gridDimY = old.gridDimY;
  params.gridDimZ = old.gridDimZ;
  params.blockDimX = old.blockDimX;
  params.blockDimY = old.blockDimY;
  params.blockDimZ = old.blockDimZ;
  params.sharedMemBytes = old.sharedMemBytes;
  params.kernelParams = old.kernelParams;
  params.extra = old.extra;
  return params;
}

}  // namespace

TALLY_EXPORT CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                      const CUgraphNode* dependencies, size_t numDependencies,
                                                      const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    Add(phGraphNode, hGraph, dependencies, nullptr, numDependencies,
        [nodeParams](ContextPtr& context) { return KernelFromParams(*nodeParams, {}, context); });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                   const CUgraphNode* dependencies, size_t numDependencies,
                                                   const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS params = Wide(*nodeParams);
  return cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

TALLY_EXPORT CUresult CUDAAPI cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(nodeParams);
    const std::lock_guard lock(GraphMutex());
    *nodeParams = ParamsOf(OperationAs<KernelOperation>(hNode), ContextOf(hNode));
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(nodeParams);
    const std::lock_guard lock(GraphMutex());
    KernelOperation& kernel = OperationAs<KernelOperation>(hNode);
    const CUDA_KERNEL_NODE_PARAMS params = ParamsOf(kernel, ContextOf(hNode));
    *nodeParams = {.func = kernel.function->handle,
                   .gridDimX = params.gridDimX,
                   .gridDimY = params.gridDimY,
                   .gridDimZ = params.gridDimZ,
                   .blockDimX = params.blockDimX,
                   .blockDimY = params.blockDimY,
                   .blockDimZ = params.blockDimZ,
                   .sharedMemBytes = params.sharedMemBytes,
                   .kernelParams = params.kernelParams,
                   .extra = nullptr};
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                                            const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    Set(hNode, [&](ContextPtr& context) { return KernelFromParams(*nodeParams, AttributesOf(hNode), context); });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                                         const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS params = Wide(*nodeParams);
  return cuGraphKernelNodeSetParams_v2(hNode, &params);
}

TALLY_EXPORT CUresult CUDAAPI cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                                            CUkernelNodeAttrValue* value_out) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(value_out);
    const std::lock_guard lock(GraphMutex());
    const KernelOperation& kernel = OperationAs<KernelOperation>(hNode);
    *value_out = {};
    for (const CUlaunchAttribute& attribute : kernel.attributes) {
      if (attribute.id == attr) *value_out = attribute.value;
    }
    // Known without having been set as an attribute.
    if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) value_out->cooperative = kernel.is_cooperative ? 1 : 0;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                                            const CUkernelNodeAttrValue* value) {
  TALLY_ENTRY({
    RequireOut(value);
    Set(hNode, [&](ContextPtr& context) {
      KernelOperation kernel = OperationAs<KernelOperation>(hNode);
      std::vector<CUlaunchAttribute> attributes = kernel.attributes;
      std::erase_if(attributes, [attr](const CUlaunchAttribute& attribute) { return attribute.id == attr; });
      CUlaunchAttribute added{};
      added.id = attr;
      added.value = *value;
      attributes.push_back(added);
      const CUDA_KERNEL_NODE_PARAMS params = ParamsOf(kernel, nullptr);
      CUDA_KERNEL_NODE_PARAMS again = params;
      again.ctx = context ? context->handle() : nullptr;
      return KernelFromParams(again, attributes, context);
    });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  TALLY_ENTRY({
    Set(dst, [&](ContextPtr& context) {
      KernelOperation kernel = OperationAs<KernelOperation>(dst);
      CUDA_KERNEL_NODE_PARAMS params = ParamsOf(kernel, context ? context->handle() : nullptr);
      return KernelFromParams(params, AttributesOf(src), context);
    });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                   const CUgraphNode* dependencies, size_t numDependencies,
                                                   const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  TALLY_ENTRY({
    RequireOut(copyParams);
    Add(phGraphNode, hGraph, dependencies, nullptr, numDependencies,
        [=](ContextPtr& context) { return CopyFromParams(*copyParams, ctx, context); });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(nodeParams);
    const std::lock_guard lock(GraphMutex());
    *nodeParams = OperationAs<CopyOperation>(hNode).given;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    Set(hNode, [&](ContextPtr& context) {
      return CopyFromParams(*nodeParams, context ? context->handle() : nullptr, context);
    });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                   const CUgraphNode* dependencies, size_t numDependencies,
                                                   const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  TALLY_ENTRY({
    RequireOut(memsetParams);
    Add(phGraphNode, hGraph, dependencies, nullptr, numDependencies,
        [=](ContextPtr& context) { return MemsetFromParams(*memsetParams, ctx, context); });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(nodeParams);
    const std::lock_guard lock(GraphMutex());
    *nodeParams = OperationAs<MemsetOperation>(hNode).given;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    Set(hNode, [&](ContextPtr& context) {
      return MemsetFromParams(*nodeParams, context ? context->handle() : nullptr, context);
    });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                 const CUgraphNode* dependencies, size_t numDependencies,
                                                 const CUDA_HOST_NODE_PARAMS* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    Add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, [=](ContextPtr& context) {
      context = CurrentContextOrNull();
      return HostFromParams(*nodeParams);
    });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(nodeParams);
    const std::lock_guard lock(GraphMutex());
    const HostOperation& host = OperationAs<HostOperation>(hNode);
    *nodeParams = {host.function, host.argument};
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    Set(hNode, [&](ContextPtr&) { return HostFromParams(*nodeParams); });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                  const CUgraphNode* dependencies, size_t numDependencies) {
  TALLY_ENTRY({
    Add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, [](ContextPtr& context) {
      context = CurrentContextOrNull();
      return EmptyOperation{};
    });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                       const CUgraphNode* dependencies, size_t numDependencies,
                                                       CUgraph childGraph) {
  TALLY_ENTRY({
    Add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, [=](ContextPtr& context) {
      context = CurrentContextOrNull();
      return ChildOperation{AdoptGraph(FindGraph(hGraph), FindGraph(childGraph), CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)};
    });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(phGraph);
    const std::lock_guard lock(GraphMutex());
    *phGraph = OperationAs<ChildOperation>(hNode).graph->handle;
  });
}

#define DEFINE_EVENT_NODE(name, Operation)                                                                      \
  TALLY_EXPORT CUresult CUDAAPI cuGraphAdd##name##Node(CUgraphNode* phGraphNode, CUgraph hGraph,                \
                                                       const CUgraphNode* dependencies, size_t numDependencies, \
                                                       CUevent event) {                                         \
    TALLY_ENTRY({                                                                                               \
      Add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, [=](ContextPtr& context) {               \
        context = CurrentContextOrNull();                                                                       \
        return Operation{FindEvent(event)};                                                                     \
      });                                                                                                       \
    });                                                                                                         \
  }                                                                                                             \
  TALLY_EXPORT CUresult CUDAAPI cuGraph##name##NodeGetEvent(CUgraphNode hNode, CUevent* event_out) {            \
    TALLY_ENTRY({                                                                                               \
      RequireInitialized();                                                                                     \
      RequireOut(event_out);                                                                                    \
      const std::lock_guard lock(GraphMutex());                                                                 \
      *event_out = OperationAs<Operation>(hNode).event->handle;                                                 \
    });                                                                                                         \
  }                                                                                                             \
  TALLY_EXPORT CUresult CUDAAPI cuGraph##name##NodeSetEvent(CUgraphNode hNode, CUevent event) {                 \
    TALLY_ENTRY({ Set(hNode, [=](ContextPtr&) { return Operation{FindEvent(event)}; }); });                     \
  }

DEFINE_EVENT_NODE(EventRecord, EventRecordOperation)
DEFINE_EVENT_NODE(EventWait, EventWaitOperation)

TALLY_EXPORT CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                     const CUgraphNode* dependencies, size_t numDependencies,
                                                     CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    Add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, [=](ContextPtr& context) {
      context = EnterContext();
      return AllocFromParams(*nodeParams, context);
    });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(params_out);
    const std::lock_guard lock(GraphMutex());
    const AllocOperation& allocation = OperationAs<AllocOperation>(hNode);
    *params_out = allocation.given;
    params_out->accessDescs = allocation.access.empty() ? nullptr : allocation.access.data();
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                    const CUgraphNode* dependencies, size_t numDependencies,
                                                    CUdeviceptr dptr) {
  TALLY_ENTRY({
    Add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, [=](ContextPtr& context) {
      context = EnterContext();
      return FreeFromParams(dptr);
    });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(dptr_out);
    const std::lock_guard lock(GraphMutex());
    *dptr_out = OperationAs<FreeOperation>(hNode).address;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                       const CUgraphNode* dependencies, size_t numDependencies,
                                                       const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    Add(phGraphNode, hGraph, dependencies, nullptr, numDependencies,
        [=](ContextPtr& context) { return MemOpsFromParams(*nodeParams, context); });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                                             CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(nodeParams_out);
    const std::lock_guard lock(GraphMutex());
    MemOpsOperation& operation = OperationAs<MemOpsOperation>(hNode);
    *nodeParams_out = {operation.given_context, static_cast<unsigned>(operation.operations.size()),
                       operation.operations.data(), operation.flags};
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                                             const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    Set(hNode, [&](ContextPtr& context) { return MemOpsFromParams(*nodeParams, context); });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                                const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                                                size_t numDependencies, CUgraphNodeParams* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    Add(phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
        [=](ContextPtr& context) { return OperationFromParams(*nodeParams, FindGraph(hGraph), context); });
  });
}

TALLY_EXPORT CUresult CUDAAPI cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                             size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}

TALLY_EXPORT CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  TALLY_ENTRY({
    RequireOut(nodeParams);
    Require(nodeParams->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && nodeParams->type != CU_GRAPH_NODE_TYPE_MEM_FREE,
            CUDA_ERROR_NOT_SUPPORTED);
    Require(nodeParams->type != CU_GRAPH_NODE_TYPE_GRAPH ||
                nodeParams->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE,
            CUDA_ERROR_NOT_SUPPORTED);
    Set(hNode,
        [&](ContextPtr& context) { return OperationFromParams(*nodeParams, FindNode(hNode)->graph.lock(), context); });
  });
}
