// CUDA manual: Graph Management, the calls whose parameters hold pointers. All others are generated.
#include <cstring>

#include "client-shim/entry/graph_nodes.h"
#include "client-shim/entry/guard.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

uint64_t Word(const void* handle) { return reinterpret_cast<uint64_t>(handle); }

CUDA_KERNEL_NODE_PARAMS_v2 FromV1(const CUDA_KERNEL_NODE_PARAMS_v1& old) {
  CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
  parameters.func = old.func;
  parameters.gridDimX = old.gridDimX;
  parameters.gridDimY = old.gridDimY;
  parameters.gridDimZ = old.gridDimZ;
  parameters.blockDimX = old.blockDimX;
  parameters.blockDimY = old.blockDimY;
  parameters.blockDimZ = old.blockDimZ;
  parameters.sharedMemBytes = old.sharedMemBytes;
  parameters.kernelParams = old.kernelParams;
  parameters.extra = old.extra;
  return parameters;
}

CUresult GetKernelNode(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Reply reply = call.lane->CallStruct(shm::Op::kGetKernelNode, Word(node));
  if (reply.result != CUDA_SUCCESS) return reply.result;
  const auto launch = reply.Read<shm::Launch>();
  const Kernel* kernel = call.process->kernels.Find(launch.function);
  if (kernel == nullptr) return RefuseUse("cuGraphKernelNodeGetParams: a kernel this process never looked up");
  *parameters = {};
  if (shm::HandleKindOf(launch.function) == shm::HandleKind::kFunction)
    parameters->func = reinterpret_cast<CUfunction>(launch.function);
  else
    parameters->kern = reinterpret_cast<CUkernel>(launch.function);
  parameters->gridDimX = launch.grid[0];
  parameters->gridDimY = launch.grid[1];
  parameters->gridDimZ = launch.grid[2];
  parameters->blockDimX = launch.block[0];
  parameters->blockDimY = launch.block[1];
  parameters->blockDimZ = launch.block[2];
  parameters->sharedMemBytes = launch.shared_bytes;
  const size_t size = launch.parameter_bytes;
  if (reply.payload_bytes < sizeof(launch) + size || size < kernel->parameter_bytes) return CUDA_ERROR_UNKNOWN;
  KernelNodeStorage* storage = call.process->node_parameters.NewKernelStorage(Word(node));
  storage->bytes.assign(reply.payload + sizeof(launch), reply.payload + sizeof(launch) + size);
  for (uint32_t i = 0; i < kernel->num_parameters; ++i)
    storage->pointers.push_back(storage->bytes.data() + kernel->layout[i].offset_bytes);
  parameters->kernelParams = storage->pointers.empty() ? nullptr : storage->pointers.data();
  return CUDA_SUCCESS;
}

template <typename T>
CUresult GetKept(CUgraphNode node, T* parameters, const char* refusal) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto kept = process->node_parameters.Find<T>(Word(node));
  if (!kept) return RefuseUse(refusal);
  *parameters = *kept;
  return CUDA_SUCCESS;
}

CUresult Instantiate(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return wire::cuGraphInstantiateWithFlags(exec, graph, flags);
}

}  // namespace

CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddKernelNode({phGraphNode, hGraph, dependencies, numDependencies}, *nodeParams);
}
CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddKernelNode({phGraphNode, hGraph, dependencies, numDependencies}, FromV1(*nodeParams));
}
CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D* copyParams, CUcontext) {
  if (copyParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddCopyNode({phGraphNode, hGraph, dependencies, numDependencies}, *copyParams);
}
CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext) {
  if (memsetParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddFillNode({phGraphNode, hGraph, dependencies, numDependencies}, *memsetParams);
}
CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                            size_t numDependencies, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddHostNode({phGraphNode, hGraph, dependencies, numDependencies}, *nodeParams);
}

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* dependencyData, size_t numDependencies,
                           CUgraphNodeParams* nodeParams) {
  if (phGraphNode == nullptr || nodeParams == nullptr || (numDependencies != 0 && dependencies == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  const CUgraphEdgeData plain{};
  for (size_t i = 0; dependencyData != nullptr && i < numDependencies; ++i) {
    if (std::memcmp(&dependencyData[i], &plain, sizeof(plain)) != 0)
      return RefuseUse("cuGraphAddNode_v2: edges with data (add them with cuGraphAddDependencies_v2)");
  }
  const NodePlace place{phGraphNode, hGraph, dependencies, numDependencies};
  switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS_v3& p = nodeParams->kernel;
      CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
      static_assert(sizeof(parameters) == sizeof(p));
      std::memcpy(&parameters, &p, sizeof(p));
      return AddKernelNode(place, parameters);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return AddCopyNode(place, nodeParams->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS_v2& p = nodeParams->memset;
      return AddFillNode(place, {p.dst, p.pitch, p.value, p.elementSize, p.width, p.height});
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return AddHostNode(place, {nodeParams->host.fn, nodeParams->host.userData});
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      if (nodeParams->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)
        return RefuseUse("cuGraphAddNode: child graphs whose ownership moves");
      const CUresult result =
          wire::cuGraphAddChildGraphNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams->graph.graph);
      if (result != CUDA_SUCCESS) return result;
      return wire::cuGraphChildGraphNodeGetGraph(*phGraphNode, &nodeParams->graph.graph);
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return wire::cuGraphAddEmptyNode(phGraphNode, hGraph, dependencies, numDependencies);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return wire::cuGraphAddEventRecordNode(phGraphNode, hGraph, dependencies, numDependencies,
                                             nodeParams->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return wire::cuGraphAddEventWaitNode(phGraphNode, hGraph, dependencies, numDependencies,
                                           nodeParams->eventWait.event);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return wire::cuGraphAddMemFreeNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams->free.dptr);
    default:
      return RefuseUse("cuGraphAddNode: nodes other than kernel, copy, fill, host, child, empty, event and free");
  }
}
CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return entry::cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return GetKernelNode(hNode, nodeParams);
}
CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS_v2 p{};
  if (const CUresult result = GetKernelNode(hNode, &p); result != CUDA_SUCCESS) return result;
  if (p.func == nullptr) {
    if (const CUresult result = entry::cuKernelGetFunction(&p.func, p.kern); result != CUDA_SUCCESS) return result;
  }
  *nodeParams = {p.func,      p.gridDimX,  p.gridDimY,       p.gridDimZ,     p.blockDimX,
                 p.blockDimY, p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra};
  return CUDA_SUCCESS;
}
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : SetKernelNode(nullptr, hNode, *nodeParams);
}
CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : SetKernelNode(nullptr, hNode, FromV1(*nodeParams));
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr || hGraphExec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetKernelNode(hGraphExec, hNode, *nodeParams);
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr || hGraphExec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetKernelNode(hGraphExec, hNode, FromV1(*nodeParams));
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  return GetKept(hNode, nodeParams, "cuGraphMemcpyNodeGetParams: of a node made by capture or cloning");
}
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : SetCopyNode(nullptr, hNode, *nodeParams);
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D* copyParams,
                                        CUcontext) {
  if (copyParams == nullptr || hGraphExec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetCopyNode(hGraphExec, hNode, *copyParams);
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return GetKept(hNode, nodeParams, "cuGraphMemsetNodeGetParams: of a node made by capture or cloning");
}
CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : SetFillNode(nullptr, hNode, *nodeParams);
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext) {
  if (memsetParams == nullptr || hGraphExec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetFillNode(hGraphExec, hNode, *memsetParams);
}
CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  return GetKept(hNode, nodeParams, "cuGraphHostNodeGetParams: of a node made by capture or cloning");
}
CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : SetHostNode(nullptr, hNode, *nodeParams);
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr || hGraphExec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetHostNode(hGraphExec, hNode, *nodeParams);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode, char* logBuffer,
                               size_t bufferSize) {
  if (phErrorNode != nullptr) *phErrorNode = nullptr;
  if (logBuffer != nullptr && bufferSize != 0) logBuffer[0] = '\0';
  return Instantiate(phGraphExec, hGraph, 0);
}
CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode, char* logBuffer,
                            size_t bufferSize) {
  return entry::cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (phGraphExec == nullptr || instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool uploads = (instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
  const CUresult result =
      Instantiate(phGraphExec, hGraph, instantiateParams->flags & ~cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD});
  instantiateParams->hErrNode_out = nullptr;
  instantiateParams->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  if (result != CUDA_SUCCESS || !uploads) return result;
  return wire::cuGraphUpload(*phGraphExec, instantiateParams->hUploadStream);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo* resultInfo) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (resultInfo == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t request[2] = {Word(hGraphExec), Word(hGraph)};
  const Reply reply = call.lane->CallStruct(shm::Op::kUpdateExec, request);
  resultInfo->result = static_cast<CUgraphExecUpdateResult>(reply.Read<uint32_t>());
  resultInfo->errorNode = reinterpret_cast<CUgraphNode>(reply.Read<uint64_t>(8));
  resultInfo->errorFromNode = reinterpret_cast<CUgraphNode>(reply.Read<uint64_t>(16));
  return reply.result;
}

}  // namespace tally::client_shim::entry
