#include "sim-driver/api/node_params.h"

#include <cstring>

#include "sim-driver/api/copy.h"
#include "sim-driver/api/device.h"
#include "sim-driver/api/error.h"
#include "sim-driver/api/launch.h"
#include "sim-driver/api/memory.h"
#include "sim-driver/api/stream_memory.h"

namespace tally::sim_driver {
namespace {

ContextPtr ContextOr(CUcontext handle) { return handle == nullptr ? EnterContext() : FindContext(handle); }

}  // namespace

KernelOperation KernelFromParams(const CUDA_KERNEL_NODE_PARAMS& params, std::span<const CUlaunchAttribute> attributes,
                                 ContextPtr& context) {
  context = ContextOr(params.ctx);
  CUfunction function = params.func;
  if (function == nullptr) function = reinterpret_cast<CUfunction>(params.kern);
  Require(function != nullptr, CUDA_ERROR_INVALID_VALUE);
  return CheckedLaunch({.function = function,
                        .grid = {params.gridDimX, params.gridDimY, params.gridDimZ},
                        .block = {params.blockDimX, params.blockDimY, params.blockDimZ},
                        .dynamic_shared_bytes = params.sharedMemBytes,
                        .parameters = params.kernelParams,
                        .extra = params.extra,
                        .attributes = attributes},
                       context);
}

CopyOperation CopyFromParams(const CUDA_MEMCPY3D& params, CUcontext handle, ContextPtr& context) {
  context = ContextOr(handle);
  CopyOperation copy = BoxCopy(params);
  copy.given_context = context->handle();
  return copy;
}

MemsetOperation MemsetFromParams(const CUDA_MEMSET_NODE_PARAMS& params, CUcontext handle, ContextPtr& context) {
  context = ContextOr(handle);
  MemsetOperation memset = CheckedMemset(params);
  memset.given_context = context->handle();
  return memset;
}

HostOperation HostFromParams(const CUDA_HOST_NODE_PARAMS& params) {
  Require(params.fn != nullptr, CUDA_ERROR_INVALID_VALUE);
  return {params.fn, params.userData};
}

AllocOperation AllocFromParams(CUDA_MEM_ALLOC_NODE_PARAMS& params, const ContextPtr& context) {
  Require(params.poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED && params.bytesize != 0 &&
              (params.accessDescCount == 0 || params.accessDescs != nullptr),
          CUDA_ERROR_INVALID_VALUE);
  Require(params.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
              params.poolProps.handleTypes == CU_MEM_HANDLE_TYPE_NONE,
          CUDA_ERROR_NOT_SUPPORTED);
  DeviceAt(params.poolProps.location.id);
  AllocOperation allocation;
  allocation.memory = AcquireGraphMemory(*context, params.bytesize, params.dptr);
  allocation.given = params;
  allocation.access.assign(params.accessDescs, params.accessDescs + params.accessDescCount);
  return allocation;
}

FreeOperation FreeFromParams(CUdeviceptr address) {
  const auto region = MemoryMap::Get().Find(address);
  Require(region && region->base == address && region->is_graph_owned, CUDA_ERROR_INVALID_VALUE);
  return {address};
}

MemOpsOperation MemOpsFromParams(const CUDA_BATCH_MEM_OP_NODE_PARAMS& params, ContextPtr& context) {
  constexpr unsigned kMaxOperations = 256;
  context = ContextOr(params.ctx);
  Require(params.count <= kMaxOperations && params.paramArray != nullptr && params.flags == 0,
          CUDA_ERROR_INVALID_VALUE);
  MemOpsOperation operation{{params.paramArray, params.paramArray + params.count}, 0, context->handle()};
  for (const CUstreamBatchMemOpParams& one : operation.operations) CheckStreamMemoryOperation(one);
  return operation;
}

CUDA_KERNEL_NODE_PARAMS ParamsOf(KernelOperation& kernel, CUcontext context) {
  const std::vector<KernelParameter>& layout = kernel.function->code.kernel().parameters;
  if (kernel.parameter_pointers.empty()) {
    for (const KernelParameter& parameter : layout) {
      kernel.parameter_pointers.push_back(kernel.parameters.data() + parameter.offset_bytes);
    }
  }
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = kernel.was_given_as_kernel ? nullptr : kernel.function->handle;
  params.kern = kernel.library_kernel;
  params.gridDimX = kernel.grid.x;
  params.gridDimY = kernel.grid.y;
  params.gridDimZ = kernel.grid.z;
  params.blockDimX = kernel.block.x;
  params.blockDimY = kernel.block.y;
  params.blockDimZ = kernel.block.z;
  params.sharedMemBytes = kernel.dynamic_shared_bytes;
  params.kernelParams = layout.empty() ? nullptr : kernel.parameter_pointers.data();
  params.ctx = context;
  return params;
}

Operation OperationFromParams(CUgraphNodeParams& params, const GraphPtr& graph, ContextPtr& context) {
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      // v3 is v2 by another name.
      CUDA_KERNEL_NODE_PARAMS kernel{};
      static_assert(sizeof kernel == sizeof params.kernel);
      std::memcpy(&kernel, &params.kernel, sizeof kernel);
      return KernelFromParams(kernel, {}, context);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return CopyFromParams(params.memcpy.copyParams, params.memcpy.copyCtx, context);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto& given = params.memset;
      return MemsetFromParams({.dst = given.dst,
                               .pitch = given.pitch,
                               .value = given.value,
                               .elementSize = given.elementSize,
                               .width = given.width,
                               .height = given.height},
                              given.ctx, context);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      context = EnterContext();
      return HostFromParams({params.host.fn, params.host.userData});
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      context = EnterContext();
      const GraphPtr child = AdoptGraph(graph, FindGraph(params.graph.graph), params.graph.ownership);
      params.graph.graph = child->handle;
      return ChildOperation{child};
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      context = EnterContext();
      return EmptyOperation{};
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      context = EnterContext();
      return EventWaitOperation{FindEvent(params.eventWait.event)};
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      context = EnterContext();
      return EventRecordOperation{FindEvent(params.eventRecord.event)};
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      context = EnterContext();
      CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
      static_assert(sizeof alloc == sizeof params.alloc);
      std::memcpy(&alloc, &params.alloc, sizeof alloc);
      AllocOperation operation = AllocFromParams(alloc, context);
      params.alloc.dptr = alloc.dptr;
      return operation;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      context = EnterContext();
      return FreeFromParams(params.free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      CUDA_BATCH_MEM_OP_NODE_PARAMS operations{};
      operations.ctx = params.memOp.ctx;
      operations.count = params.memOp.count;
      operations.paramArray = params.memOp.paramArray;
      operations.flags = params.memOp.flags;
      return MemOpsFromParams(operations, context);
    }
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      Fail(CUDA_ERROR_NOT_SUPPORTED);
    default:
      Fail(CUDA_ERROR_INVALID_VALUE);
  }
}

}  // namespace tally::sim_driver
