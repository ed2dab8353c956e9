// What a capture records, node by node: a fork and join of two streams, a programmatic launch, and the parameters of
// nodes that capture made, read back. Nothing but what the program did may be in the graph.
#include <cuda.h>

#include <algorithm>
#include <map>

#include "tests/programs/driver_entry.h"

using check::Results;

namespace {

constexpr int kCount = 256;

struct Edge {
  uint32_t from, to;         // in order of creation
  uint32_t from_port, type;  // CUgraphEdgeData
  bool operator<(const Edge& other) const { return from != other.from ? from < other.from : to < other.to; }
};

void Reference(Results& results) {
  // copy, kernel, kernel, memset, kernel (programmatic), host
  results.Add("types", std::vector<uint32_t>{1, 0, 0, 2, 0, 3});
  results.Add("edges",
              std::vector<Edge>{{0, 1, 0, 0}, {0, 2, 0, 0}, {1, 4, 1, 1}, {2, 3, 0, 0}, {3, 5, 0, 0}, {4, 5, 0, 0}});
  results.AddValue<uint32_t>("frontier while capturing", 1);
  results.Add("copy", std::vector<uint64_t>{1, kCount * 4, 1, 1});
  results.Add("fill", std::vector<uint32_t>{7, 1, kCount, 1});
  results.Add("host", std::vector<uint32_t>{1, 1});
  results.Add("kernel", std::vector<uint32_t>{2, 128, 3, 1, 1});
  std::vector<uint32_t> out(kCount);
  for (uint32_t i = 0; i < kCount; ++i) out[i] = i * 3 + 5;
  results.Add("replayed", out);
  results.AddValue<uint32_t>("host function ran", 1);
}

__global__ void Scale(uint32_t* data, uint32_t factor) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) data[i] *= factor;
}
__global__ void Add(uint32_t* data, uint32_t constant) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) data[i] += constant;
}

void CUDART_CB CountOne(void* argument) { ++*static_cast<uint32_t*>(argument); }

// A launch that may start before its predecessor has ended; what it needs it waits for (nothing, here).
void LaunchProgrammatic(cudaStream_t stream, uint32_t* data) {
  cudaLaunchConfig_t config = {};
  config.gridDim = 2;
  config.blockDim = 128;
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK_CUDA(cudaLaunchKernelEx(&config, Add, data, 0u));
}

void Device(Results& results) {
  cudaStream_t main_stream, side_stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&main_stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaStreamCreate(&side_stream));
  cudaEvent_t forked, joined;
  CHECK_CUDA(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
  CHECK_CUDA(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  check::DeviceBuffer<uint32_t> data(kCount), scratch(2 * kCount);
  uint32_t* pinned;
  CHECK_CUDA(cudaMallocHost(&pinned, kCount * 4));
  for (uint32_t i = 0; i < kCount; ++i) pinned[i] = i;
  uint32_t num_calls = 0;
  // Earlier work of both streams must leave no trace in the graph.
  Add<<<2, 128, 0, main_stream>>>(scratch.get(), 1);
  Add<<<2, 128, 0, side_stream>>>(scratch.get() + kCount, 1);

  CHECK_CUDA(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeThreadLocal));
  CHECK_CUDA(cudaMemcpyAsync(data.get(), pinned, kCount * 4, cudaMemcpyHostToDevice, main_stream));
  CHECK_CUDA(cudaEventRecord(forked, main_stream));
  CHECK_CUDA(cudaStreamWaitEvent(side_stream, forked, 0));
  Scale<<<2, 128, 0, main_stream>>>(data.get(), 3);
  Add<<<2, 128, 0, side_stream>>>(scratch.get(), 1);
  CHECK_CUDA(cudaMemsetAsync(scratch.get(), 7, kCount, side_stream));
  CHECK_CUDA(cudaEventRecord(joined, side_stream));
  LaunchProgrammatic(main_stream, data.get());
  cudaStreamCaptureStatus status;
  size_t num_frontier = 0;
  CHECK_CUDA(cudaStreamGetCaptureInfo(main_stream, &status, nullptr, nullptr, nullptr, nullptr, &num_frontier));
  CHECK_CUDA(cudaStreamWaitEvent(main_stream, joined, 0));
  CHECK_CUDA(cudaLaunchHostFunc(main_stream, CountOne, &num_calls));
  cudaGraph_t graph;
  CHECK_CUDA(cudaStreamEndCapture(main_stream, &graph));

  size_t num_nodes = 0, num_edges = 0;
  CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &num_nodes));
  std::vector<cudaGraphNode_t> nodes(num_nodes);
  CHECK_CUDA(cudaGraphGetNodes(graph, nodes.data(), &num_nodes));
  std::vector<uint32_t> types;
  std::map<cudaGraphNode_t, uint32_t> number;
  cudaGraphNode_t copy_node = nullptr, fill_node = nullptr, host_node = nullptr, scale_node = nullptr;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    CHECK_CUDA(cudaGraphNodeGetType(node, &type));
    number[node] = static_cast<uint32_t>(types.size());
    types.push_back(type);
    if (type == cudaGraphNodeTypeMemcpy) copy_node = node;
    if (type == cudaGraphNodeTypeMemset) fill_node = node;
    if (type == cudaGraphNodeTypeHost) host_node = node;
    if (type == cudaGraphNodeTypeKernel && scale_node == nullptr) scale_node = node;
  }
  results.Add("types", types);
  auto get_edges = DRIVER_ENTRY_OF(cuGraphGetEdges_v2, "cuGraphGetEdges", 13000);
  CHECK_DRIVER(get_edges(graph, nullptr, nullptr, nullptr, &num_edges));
  std::vector<CUgraphNode> from(num_edges), to(num_edges);
  std::vector<CUgraphEdgeData> edge_data(num_edges);
  CHECK_DRIVER(get_edges(graph, from.data(), to.data(), edge_data.data(), &num_edges));
  std::vector<Edge> edges;
  for (size_t i = 0; i < num_edges; ++i) {
    edges.push_back({number[from[i]], number[to[i]], edge_data[i].from_port, edge_data[i].type});
  }
  std::sort(edges.begin(), edges.end());
  results.Add("edges", edges);
  results.AddValue<uint32_t>("frontier while capturing", static_cast<uint32_t>(num_frontier));

  cudaMemcpy3DParms copy = {};
  CHECK_CUDA(cudaGraphMemcpyNodeGetParams(copy_node, &copy));
  results.Add("copy", std::vector<uint64_t>{copy.srcPtr.ptr == pinned && copy.dstPtr.ptr == data.get(),
                                            copy.extent.width, copy.extent.height, copy.extent.depth});
  cudaMemsetParams fill = {};
  CHECK_CUDA(cudaGraphMemsetNodeGetParams(fill_node, &fill));
  results.Add("fill", std::vector<uint32_t>{fill.value, fill.elementSize, static_cast<uint32_t>(fill.width),
                                            static_cast<uint32_t>(fill.height)});
  cudaHostNodeParams host = {};
  CHECK_CUDA(cudaGraphHostNodeGetParams(host_node, &host));
  results.Add("host", std::vector<uint32_t>{host.fn == CountOne, host.userData == &num_calls});
  cudaKernelNodeParams kernel = {};
  CHECK_CUDA(cudaGraphKernelNodeGetParams(scale_node, &kernel));
  results.Add("kernel", std::vector<uint32_t>{kernel.gridDim.x, kernel.blockDim.x,
                                              *static_cast<uint32_t*>(kernel.kernelParams[1]),
                                              *static_cast<uint32_t**>(kernel.kernelParams[0]) == data.get(),
                                              kernel.func == reinterpret_cast<void*>(Scale)});

  cudaGraphExec_t executable;
  CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  CHECK_CUDA(cudaGraphLaunch(executable, main_stream));
  Add<<<2, 128, 0, main_stream>>>(data.get(), 5);
  CHECK_CUDA(cudaStreamSynchronize(main_stream));
  results.Add("replayed", data.Download());
  results.AddValue("host function ran", num_calls);
  CHECK_CUDA(cudaGraphExecDestroy(executable));
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaFreeHost(pinned));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
