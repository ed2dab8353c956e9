// CUDA manual: cuGraphAddNode and its kin, which take any kind of node; the picture of a graph for Graphviz.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "client-shim/entry/graph_record.h"
#include "client-shim/state/process.h"
#include "client-shim/state/refusals.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

CUDA_KERNEL_NODE_PARAMS_v2 KernelOf(const CUgraphNodeParams& p) {
  CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
  static_assert(sizeof(kernel) == sizeof(p.kernel));
  std::memcpy(&kernel, &p.kernel, sizeof(kernel));  // v3 is v2 by another name
  return kernel;
}
CUDA_MEMSET_NODE_PARAMS FillOf(const CUgraphNodeParams& p) {
  return {p.memset.dst, p.memset.pitch, p.memset.value, p.memset.elementSize, p.memset.width, p.memset.height};
}
CUDA_BATCH_MEM_OP_NODE_PARAMS MemoryOperationsOf(const CUgraphNodeParams& p) {
  return {p.memOp.ctx, p.memOp.count, p.memOp.paramArray, p.memOp.flags};
}

// The graph goes over to the node: its handle, and those of its nodes, stay what they are.
CUresult AddMovedGraphNode(const NodePlace& place, const CUgraphEdgeData* edges, CUgraph child) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckPlace(place); result != CUDA_SUCCESS) return result;
  const shm::MovedGraphNode node{Word(child), edges != nullptr ? 1u : 0u, 0};
  const size_t edge_bytes = edges != nullptr ? place.num_dependencies * sizeof(*edges) : 0;
  std::byte* tail = nullptr;
  if (const CUresult result = BeginAdd(call, shm::Op::kAddMovedGraphNode, place, sizeof(node) + edge_bytes, &tail);
      result != CUDA_SUCCESS)
    return result;
  std::memcpy(tail, &node, sizeof(node));
  if (edge_bytes != 0) std::memcpy(tail + sizeof(node), edges, edge_bytes);
  return FinishAdd(call, place);
}

CUresult Add(const NodePlace& place, CUgraphNodeParams* p) {
  switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return AddKernelNode(place, KernelOf(*p));
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return AddCopyNode(place, p->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return AddFillNode(place, FillOf(*p));
    case CU_GRAPH_NODE_TYPE_HOST:
      return AddHostNode(place, {p->host.fn, p->host.userData});
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      if (p->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) return CUDA_ERROR_INVALID_VALUE;
      const CUresult result = wire::cuGraphAddChildGraphNode(place.node, place.graph, place.dependencies,
                                                             place.num_dependencies, p->graph.graph);
      if (result != CUDA_SUCCESS) return result;
      return wire::cuGraphChildGraphNodeGetGraph(*place.node, &p->graph.graph);
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return wire::cuGraphAddEmptyNode(place.node, place.graph, place.dependencies, place.num_dependencies);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return wire::cuGraphAddEventRecordNode(place.node, place.graph, place.dependencies, place.num_dependencies,
                                             p->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return wire::cuGraphAddEventWaitNode(place.node, place.graph, place.dependencies, place.num_dependencies,
                                           p->eventWait.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
      static_assert(sizeof(allocation) == sizeof(p->alloc));
      std::memcpy(&allocation, &p->alloc, sizeof(allocation));
      const CUresult result = AddAllocationNode(place, &allocation);
      p->alloc.dptr = allocation.dptr;
      return result;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return wire::cuGraphAddMemFreeNode(place.node, place.graph, place.dependencies, place.num_dependencies,
                                         p->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return AddMemoryOperationsNode(place, MemoryOperationsOf(*p));
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return AddConditionalNode(place, &p->conditional);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return RefuseUse("cuGraphAddNode: external semaphores");
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// `exec` null: the node itself.
CUresult Set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams& p) {
  switch (p.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return SetKernelNode(exec, node, KernelOf(p));
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return SetCopyNode(exec, node, p.memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return SetFillNode(exec, node, FillOf(p));
    case CU_GRAPH_NODE_TYPE_HOST:
      return SetHostNode(exec, node, {p.host.fn, p.host.userData});
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return exec != nullptr ? wire::cuGraphExecChildGraphNodeSetParams(exec, node, p.graph.graph)
                             : RefuseUse("cuGraphNodeSetParams: child graphs");
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return exec != nullptr ? wire::cuGraphExecEventRecordNodeSetEvent(exec, node, p.eventRecord.event)
                             : wire::cuGraphEventRecordNodeSetEvent(node, p.eventRecord.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return exec != nullptr ? wire::cuGraphExecEventWaitNodeSetEvent(exec, node, p.eventWait.event)
                             : wire::cuGraphEventWaitNodeSetEvent(node, p.eventWait.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return SetMemoryOperationsNode(exec, node, MemoryOperationsOf(p));
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return CUDA_ERROR_NOT_SUPPORTED;  // as natively, but for semaphores
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

bool IsPlain(const CUgraphEdgeData* edges, size_t count) {
  const CUgraphEdgeData plain{};
  for (size_t i = 0; edges != nullptr && i < count; ++i) {
    if (std::memcmp(&edges[i], &plain, sizeof(plain)) != 0) return false;
  }
  return true;
}

}  // namespace

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* dependencyData, size_t numDependencies,
                           CUgraphNodeParams* nodeParams) {
  if (phGraphNode == nullptr || nodeParams == nullptr || (numDependencies != 0 && dependencies == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  if (nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH &&
      nodeParams->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
    return AddMovedGraphNode({phGraphNode, hGraph, dependencies, numDependencies}, dependencyData,
                             nodeParams->graph.graph);
  if (IsPlain(dependencyData, numDependencies))
    return Add({phGraphNode, hGraph, dependencies, numDependencies}, nodeParams);
  // Edges with data: the node first, then its edges.
  CUgraphNode node = nullptr;
  NodePlace place{&node, hGraph, nullptr, 0};
  place.has_later_edges = true;
  if (const CUresult result = Add(place, nodeParams); result != CUDA_SUCCESS) return result;
  const std::vector<CUgraphNode> to(numDependencies, node);
  const CUresult result =
      wire::cuGraphAddDependencies_v2(hGraph, dependencies, to.data(), dependencyData, numDependencies);
  if (result != CUDA_SUCCESS) {
    wire::cuGraphDestroyNode(node);
    return result;
  }
  *phGraphNode = node;
  return CUDA_SUCCESS;
}
CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return entry::cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : Set(nullptr, hNode, *nodeParams);
}
CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr || hGraphExec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Set(hGraphExec, hNode, *nodeParams);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUevent event = nullptr;
  if (attr == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) event = value->programmaticEvent.event;
  if (attr == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) event = value->launchCompletionEvent.event;
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  // Whenever the graph runs it is recorded.
  if (Event* known = event != nullptr ? process->events.Find(Word(event)) : nullptr; known != nullptr)
    known->StopTracking();
  return wire::cuGraphKernelNodeSetAttribute(hNode, attr, value);
}

// The executor draws, the file is the program's own.
CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string text;
  uint64_t total = 0;
  do {
    const Reply reply =
        call.channel->CallStruct(shm::Op::kGraphText, shm::GraphText{Word(hGraph), text.size(), flags, 0});
    if (reply.result != CUDA_SUCCESS) return reply.result;
    total = reply.Read<uint64_t>();
    if (reply.payload_bytes <= sizeof(total)) break;
    text.append(reinterpret_cast<const char*>(reply.payload) + sizeof(total), reply.payload_bytes - sizeof(total));
  } while (text.size() < total);
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && is_written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace tally::client_shim::entry
