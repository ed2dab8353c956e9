// A graph built node by node: memset, copies, kernels, a host function and a child graph; then the executable's kernel
// parameters are changed in place, a node is disabled and enabled again, and the whole is updated from a changed graph.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 256;

uint32_t Start(uint32_t i) { return i * 7 + 1; }

void Reference(Results& results) {
  struct Variant {
    uint32_t factor;
    bool add_enabled;
  };
  for (Variant v : {Variant{3, true}, Variant{11, true}, Variant{11, false}, Variant{13, true}}) {
    std::vector<uint32_t> out(kCount);
    for (uint32_t i = 0; i < kCount; ++i) out[i] = Start(i) * v.factor + 0x02020202u + (v.add_enabled ? 1000 : 0) + 5;
    results.Add("out", out);
  }
  results.AddValue<uint32_t>("host node runs", 4);
  results.AddValue<uint32_t>("edges", 5);
}

__global__ void MultiplyAdd(const uint32_t* in, uint32_t* inout, uint32_t factor) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  inout[i] += in[i] * factor;
}
__global__ void AddConstant(uint32_t* inout, uint32_t constant) {
  inout[blockIdx.x * blockDim.x + threadIdx.x] += constant;
}

void CountRun(void* runs) { ++*static_cast<uint32_t*>(runs); }

cudaKernelNodeParams KernelNode(void* function, void** arguments) {
  cudaKernelNodeParams parameters = {};
  parameters.func = function;
  parameters.gridDim = dim3(2);
  parameters.blockDim = dim3(kCount / 2);
  parameters.kernelParams = arguments;
  return parameters;
}

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> in(kCount), out(kCount);
  uint32_t *host_in, *host_out;
  CHECK_CUDA(cudaMallocHost(&host_in, in.size_bytes()));
  CHECK_CUDA(cudaMallocHost(&host_out, out.size_bytes()));
  for (uint32_t i = 0; i < kCount; ++i) host_in[i] = Start(i);
  uint32_t runs = 0;

  cudaGraph_t graph, child;
  CHECK_CUDA(cudaGraphCreate(&graph, 0));
  CHECK_CUDA(cudaGraphCreate(&child, 0));
  cudaGraphNode_t upload, clear, multiply, add, add_in_child, download, count;
  CHECK_CUDA(
      cudaGraphAddMemcpyNode1D(&upload, graph, nullptr, 0, in.get(), host_in, in.size_bytes(), cudaMemcpyHostToDevice));
  cudaMemsetParams memset_parameters = {};
  memset_parameters.dst = out.get();
  memset_parameters.value = 2;
  memset_parameters.elementSize = 1;
  memset_parameters.width = out.size_bytes();
  memset_parameters.height = 1;
  CHECK_CUDA(cudaGraphAddMemsetNode(&clear, graph, nullptr, 0, &memset_parameters));
  uint32_t *in_pointer = in.get(), *out_pointer = out.get(), factor = 3, constant = 1000;
  void* multiply_arguments[] = {&in_pointer, &out_pointer, &factor};
  void* add_arguments[] = {&out_pointer, &constant};
  cudaKernelNodeParams multiply_node = KernelNode(reinterpret_cast<void*>(MultiplyAdd), multiply_arguments);
  cudaKernelNodeParams add_node = KernelNode(reinterpret_cast<void*>(AddConstant), add_arguments);
  cudaGraphNode_t before_multiply[] = {upload, clear};
  CHECK_CUDA(cudaGraphAddKernelNode(&multiply, graph, before_multiply, 2, &multiply_node));
  CHECK_CUDA(cudaGraphAddKernelNode(&add, graph, &multiply, 1, &add_node));
  cudaGraphNode_t child_node;
  CHECK_CUDA(cudaGraphAddKernelNode(&add_in_child, child, nullptr, 0, &add_node));
  constant = 5;  // parameters are copied when a node is made or set, not when it runs
  CHECK_CUDA(cudaGraphKernelNodeSetParams(add_in_child, &add_node));
  constant = 0;
  CHECK_CUDA(cudaGraphAddChildGraphNode(&child_node, graph, &add, 1, child));
  CHECK_CUDA(cudaGraphAddMemcpyNode1D(&download, graph, &child_node, 1, host_out, out.get(), out.size_bytes(),
                                      cudaMemcpyDeviceToHost));
  cudaHostNodeParams host_node = {CountRun, &runs};
  CHECK_CUDA(cudaGraphAddHostNode(&count, graph, nullptr, 0, &host_node));
  CHECK_CUDA(cudaGraphDestroy(child));  // the node has its own copy

  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  cudaGraphExec_t executable;
  CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  auto launch = [&] {
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    results.Add("out", host_out, kCount);
  };
  launch();
  factor = 11;
  CHECK_CUDA(cudaGraphExecKernelNodeSetParams(executable, multiply, &multiply_node));
  launch();
  CHECK_CUDA(cudaGraphNodeSetEnabled(executable, add, 0));
  launch();
  CHECK_CUDA(cudaGraphNodeSetEnabled(executable, add, 1));
  factor = 13;
  CHECK_CUDA(cudaGraphKernelNodeSetParams(multiply, &multiply_node));
  cudaGraphExecUpdateResultInfo update;
  CHECK_CUDA(cudaGraphExecUpdate(executable, graph, &update));
  launch();
  results.AddValue("host node runs", runs);
  size_t num_edges = 0;
  CHECK_CUDA(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &num_edges));
  results.AddValue<uint32_t>("edges", static_cast<uint32_t>(num_edges));
  CHECK_CUDA(cudaGraphExecDestroy(executable));
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFreeHost(host_in));
  CHECK_CUDA(cudaFreeHost(host_out));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
