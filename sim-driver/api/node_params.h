// Between the parameter structs of graph nodes and operations, both ways.
#pragma once

#include <cuda.h>

#include "sim-driver/api/graph.h"

namespace tally::sim_driver {

// Each checks its struct like the stream call of the same meaning and fails with the same codes. `context`: a handle
// from the struct or the call, null for the current one; on return the context that the node runs in.
KernelOperation KernelFromParams(const CUDA_KERNEL_NODE_PARAMS& params, std::span<const CUlaunchAttribute> attributes,
                                 ContextPtr& context);
CopyOperation CopyFromParams(const CUDA_MEMCPY3D& params, CUcontext handle, ContextPtr& context);
MemsetOperation MemsetFromParams(const CUDA_MEMSET_NODE_PARAMS& params, CUcontext handle, ContextPtr& context);
HostOperation HostFromParams(const CUDA_HOST_NODE_PARAMS& params);
// Allocates and writes `params.dptr`.
AllocOperation AllocFromParams(CUDA_MEM_ALLOC_NODE_PARAMS& params, const ContextPtr& context);
FreeOperation FreeFromParams(CUdeviceptr address);
MemOpsOperation MemOpsFromParams(const CUDA_BATCH_MEM_OP_NODE_PARAMS& params, ContextPtr& context);

// The pointers in the result stay valid as long as the node's operation is not changed.
CUDA_KERNEL_NODE_PARAMS ParamsOf(KernelOperation& kernel, CUcontext context);

// Any kind, for cuGraphAddNode, cuGraphNodeSetParams, cuGraphExecNodeSetParams. Conditional nodes and external
// semaphores are refused with NOT_SUPPORTED. `graph` is the one that the node is in. Call with GraphMutex() held.
Operation OperationFromParams(CUgraphNodeParams& params, const GraphPtr& graph, ContextPtr& context);

}  // namespace tally::sim_driver
