// CUDA manual: Graph Management, the calls whose parameters hold pointers. All others are generated.
#include <cstring>

#include "client-shim/entry/graph_record.h"
#include "client-shim/state/callback_thread.h"
#include "client-shim/state/process.h"
#include "client-shim/state/refusals.h"
#include "proto/driver/generated/client_calls.h"
#include "proto/shm/records_launch_abi.h"

namespace tally::client_shim::entry {
namespace {

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
  const Reply reply = call.channel->CallStruct(shm::Op::kGetKernelNode, Word(node));
  if (reply.result != CUDA_SUCCESS) return reply.result;
  const auto launch = reply.Read<shm::Launch>();
  const Kernel* kernel = call.process->kernels.Find(launch.function);
  if (kernel == nullptr) return RefuseUse("cuGraphKernelNodeGetParams: a kernel this process never looked up");
  *parameters = {};
  if (shm::HandleKindOf(launch.function) == shm::HandleKind::kFunction) {
    // The runtime knows its kernels by their CUkernels.
    parameters->func = reinterpret_cast<CUfunction>(launch.function);
    parameters->kern = reinterpret_cast<CUkernel>(kernel->kernel_of_function.load(std::memory_order_acquire));
  } else {
    parameters->kern = reinterpret_cast<CUkernel>(launch.function);
  }
  parameters->gridDimX = launch.grid[0];
  parameters->gridDimY = launch.grid[1];
  parameters->gridDimZ = launch.grid[2];
  parameters->blockDimX = launch.block[0];
  parameters->blockDimY = launch.block[1];
  parameters->blockDimZ = launch.block[2];
  parameters->sharedMemBytes = launch.shared_bytes;
  const size_t size = launch.parameter_bytes;
  const bool is_extra = (launch.flags & shm::kLaunchExtra) != 0;
  if (reply.payload_bytes < sizeof(launch) + size || (!is_extra && size < kernel->parameter_bytes))
    return CUDA_ERROR_UNKNOWN;
  KernelNodeStorage* storage = call.process->node_parameters.NewKernelStorage(Word(node));
  storage->bytes.assign(reply.payload + sizeof(launch), reply.payload + sizeof(launch) + size);
  if (is_extra) {
    storage->size_bytes = size;
    storage->pointers = {CU_LAUNCH_PARAM_BUFFER_POINTER, storage->bytes.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                         &storage->size_bytes, CU_LAUNCH_PARAM_END};
    parameters->extra = storage->pointers.data();
    return CUDA_SUCCESS;
  }
  for (uint32_t i = 0; i < kernel->num_parameters; ++i)
    storage->pointers.push_back(storage->bytes.data() + kernel->layout[i].offset_bytes);
  parameters->kernelParams = storage->pointers.empty() ? nullptr : storage->pointers.data();
  return CUDA_SUCCESS;
}

// Parameters as the program gave them to a node it built itself.
template <typename T>
bool FindKept(CUgraphNode node, T* parameters) {
  const Process* process = CurrentProcess();
  if (process == nullptr) return false;
  const auto kept = process->node_parameters.Find<T>(Word(node));
  if (kept) *parameters = *kept;
  return kept.has_value();
}

CUresult Instantiate(CUgraphExec* exec, CUgraph graph, unsigned long long flags, CUstream upload_stream,
                     shm::Instantiated* details) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
    return RefuseUse("cuGraphInstantiate: graphs that kernels launch");
  shm::Instantiate request{Word(graph), flags, 0};
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) {
    if (const CUresult result = ResolveStreamForWork(*call.process, upload_stream, &request.upload_stream);
        result != CUDA_SUCCESS)
      return result;
  }
  const Reply reply = call.channel->CallStruct(shm::Op::kInstantiate, request);
  *details = reply.Read<shm::Instantiated>();
  if (reply.result == CUDA_SUCCESS) *exec = reinterpret_cast<CUgraphExec>(details->exec);
  return reply.result;
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
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (FindKept(hNode, nodeParams)) return CUDA_SUCCESS;
  const Reply reply = call.channel->CallStruct(shm::Op::kGetCopyNode, Word(hNode));
  if (reply.result == CUDA_SUCCESS) *nodeParams = reply.Read<CUDA_MEMCPY3D>();
  return reply.result;
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
  if (nodeParams != nullptr && FindKept(hNode, nodeParams)) return CUDA_SUCCESS;
  return wire::cuGraphMemsetNodeGetParams(hNode, nodeParams);
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
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Reply reply = call.channel->CallStruct(shm::Op::kGetHostNode, Word(hNode));
  if (reply.result != CUDA_SUCCESS) return reply.result;
  const Callback* callback = CallbackOf(reply.Read<uint64_t>());
  if (callback == nullptr || callback->function == nullptr)
    return RefuseUse("cuGraphHostNodeGetParams: of the shim's own node for pageable memory");
  *nodeParams = {callback->function, callback->user};
  return CUDA_SUCCESS;
}
CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : SetHostNode(nullptr, hNode, *nodeParams);
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr || hGraphExec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SetHostNode(hGraphExec, hNode, *nodeParams);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long flags) {
  shm::Instantiated details;
  return Instantiate(phGraphExec, hGraph, flags, nullptr, &details);
}
CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode, char* logBuffer,
                               size_t bufferSize) {
  if (logBuffer != nullptr && bufferSize != 0) logBuffer[0] = '\0';
  shm::Instantiated details{};
  const CUresult result = Instantiate(phGraphExec, hGraph, 0, nullptr, &details);
  if (phErrorNode != nullptr) *phErrorNode = reinterpret_cast<CUgraphNode>(details.error_node);
  return result;
}
CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode, char* logBuffer,
                            size_t bufferSize) {
  return entry::cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  shm::Instantiated details{};
  details.result = CUDA_GRAPH_INSTANTIATE_ERROR;
  const CUresult result =
      Instantiate(phGraphExec, hGraph, instantiateParams->flags, instantiateParams->hUploadStream, &details);
  instantiateParams->hErrNode_out = reinterpret_cast<CUgraphNode>(details.error_node);
  instantiateParams->result_out = static_cast<CUgraphInstantiateResult>(details.result);
  return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo* resultInfo) {
  Call call;
  if (const CUresult result = BeginCall(&call); result != CUDA_SUCCESS) return result;
  if (resultInfo == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t request[2] = {Word(hGraphExec), Word(hGraph)};
  const Reply reply = call.channel->CallStruct(shm::Op::kUpdateExec, request);
  resultInfo->result = static_cast<CUgraphExecUpdateResult>(reply.Read<uint32_t>());
  resultInfo->errorNode = reinterpret_cast<CUgraphNode>(reply.Read<uint64_t>(8));
  resultInfo->errorFromNode = reinterpret_cast<CUgraphNode>(reply.Read<uint64_t>(16));
  return reply.result;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  CUgraphExecUpdateResultInfo details{};
  details.result = CU_GRAPH_EXEC_UPDATE_ERROR;
  const CUresult result = entry::cuGraphExecUpdate_v2(hGraphExec, hGraph, &details);
  if (hErrorNode_out != nullptr) *hErrorNode_out = details.errorNode;
  if (updateResult_out != nullptr) *updateResult_out = details.result;
  return result;
}

}  // namespace tally::client_shim::entry
