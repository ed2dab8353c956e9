// Adding nodes that hold more than scalars and handles to a graph, and changing them.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace tally::client_shim {

// Where a new node goes.
struct NodePlace {
  CUgraphNode* node;
  CUgraph graph;
  const CUgraphNode* dependencies;
  size_t num_dependencies;
  bool has_later_edges = false;  // edges with data follow: the node must be one node
};

CUresult AddKernelNode(const NodePlace& place, const CUDA_KERNEL_NODE_PARAMS_v2& parameters);
CUresult AddCopyNode(const NodePlace& place, const CUDA_MEMCPY3D& copy);
CUresult AddFillNode(const NodePlace& place, const CUDA_MEMSET_NODE_PARAMS& fill);
CUresult AddHostNode(const NodePlace& place, const CUDA_HOST_NODE_PARAMS& host);

CUresult AddMemoryOperationsNode(const NodePlace& place, const CUDA_BATCH_MEM_OP_NODE_PARAMS& operations);
// These two write what the driver says into the parameters: the address, the bodies.
CUresult AddAllocationNode(const NodePlace& place, CUDA_MEM_ALLOC_NODE_PARAMS* allocation);
CUresult AddConditionalNode(const NodePlace& place, CUDA_CONDITIONAL_NODE_PARAMS* conditional);

// `exec` null: the node of the graph itself; else its counterpart in the executable graph.
CUresult SetKernelNode(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2& parameters);
CUresult SetCopyNode(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D& copy);
CUresult SetFillNode(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS& fill);
CUresult SetHostNode(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS& host);
CUresult SetMemoryOperationsNode(CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS& operations);

}  // namespace tally::client_shim
