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
};

CUresult AddKernelNode(const NodePlace& place, const CUDA_KERNEL_NODE_PARAMS_v2& parameters);
CUresult AddCopyNode(const NodePlace& place, const CUDA_MEMCPY3D& copy);
CUresult AddFillNode(const NodePlace& place, const CUDA_MEMSET_NODE_PARAMS& fill);
CUresult AddHostNode(const NodePlace& place, const CUDA_HOST_NODE_PARAMS& host);

// `exec` null: the node of the graph itself; else its counterpart in the executable graph.
CUresult SetKernelNode(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2& parameters);
CUresult SetCopyNode(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D& copy);
CUresult SetFillNode(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS& fill);
CUresult SetHostNode(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS& host);

}  // namespace tally::client_shim
