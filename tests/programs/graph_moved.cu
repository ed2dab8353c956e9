// Child graphs that are not cloned but move into their parent: handles of the graph and of its nodes stay, so that the
// nodes can be asked and changed through them; such a graph may have memory nodes; and what it may not be used for.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 1000;

void Reference(Results& results) {
  std::vector<uint32_t> first(kCount), second(kCount);
  for (uint32_t i = 0; i < kCount; ++i) first[i] = (i + 3) * 5, second[i] = (i + 8) * 5;
  results.Add("moved", first);
  results.Add("handles", std::vector<uint32_t>{1, 2, 1, 3});
  results.Add("changed in the executable", second);
  results.Add("refused", std::vector<uint32_t>{1, 1, 1});
  std::vector<uint32_t> borrowed(kCount);
  for (uint32_t i = 0; i < kCount; ++i) borrowed[i] = i * 2 + 1;
  results.Add("memory of the child", borrowed);
  results.Add("again", borrowed);
}

__global__ void Iota(uint32_t* data) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) data[i] = i;
}
__global__ void Add(uint32_t* data, uint32_t constant) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) data[i] += constant;
}
__global__ void Affine(const uint32_t* in, uint32_t* out, uint32_t factor, uint32_t constant) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) out[i] = in[i] * factor + constant;
}
constexpr int kBlocks = (kCount + 127) / 128;

template <class Kernel>
cudaGraphNode_t AddKernel(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, Kernel* kernel, void** parameters) {
  cudaKernelNodeParams p = {};
  p.func = reinterpret_cast<void*>(kernel);
  p.gridDim = kBlocks;
  p.blockDim = 128;
  p.kernelParams = parameters;
  cudaGraphNode_t node;
  CHECK_CUDA(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &p));
  return node;
}

cudaError_t Move(cudaGraphNode_t* node, cudaGraph_t parent, std::vector<cudaGraphNode_t> after, cudaGraph_t child) {
  cudaGraphNodeParams p = {};
  p.type = cudaGraphNodeTypeGraph;
  p.graph.graph = child;
  p.graph.ownership = cudaGraphChildGraphOwnershipMove;
  return cudaGraphAddNode(node, parent, after.data(), nullptr, after.size(), &p);
}

void Moved(Results& results, cudaStream_t stream) {
  check::DeviceBuffer<uint32_t> data(kCount);
  uint32_t* pointer = data.get();
  uint32_t three = 3, eight = 8, factor = 5, zero = 0;
  void* iota_parameters[] = {&pointer};
  void* add_parameters[] = {&pointer, &three};
  void* affine_parameters[] = {&pointer, &pointer, &factor, &zero};
  cudaGraph_t parent, child;
  CHECK_CUDA(cudaGraphCreate(&parent, 0));
  CHECK_CUDA(cudaGraphCreate(&child, 0));
  const cudaGraphNode_t iota = AddKernel(parent, {}, Iota, iota_parameters);
  const cudaGraphNode_t add = AddKernel(child, {}, Add, add_parameters);
  cudaGraphNode_t moved;
  CHECK_CUDA(Move(&moved, parent, {iota}, child));
  AddKernel(parent, {moved}, Affine, affine_parameters);
  // Also after it was moved it can grow.
  cudaGraphNode_t empty;
  CHECK_CUDA(cudaGraphAddEmptyNode(&empty, child, &add, 1));
  cudaGraphExec_t executable;
  CHECK_CUDA(cudaGraphInstantiate(&executable, parent, 0));
  CHECK_CUDA(cudaGraphLaunch(executable, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("moved", data.Download());

  cudaGraph_t found;
  CHECK_CUDA(cudaGraphChildGraphNodeGetGraph(moved, &found));
  size_t num_nodes = 0;
  CHECK_CUDA(cudaGraphGetNodes(child, nullptr, &num_nodes));
  cudaGraphNodeType type;
  CHECK_CUDA(cudaGraphNodeGetType(add, &type));
  cudaKernelNodeParams said = {};
  CHECK_CUDA(cudaGraphKernelNodeGetParams(add, &said));
  results.Add("handles",
              std::vector<uint32_t>{found == child, static_cast<uint32_t>(num_nodes), type == cudaGraphNodeTypeKernel,
                                    *static_cast<uint32_t*>(said.kernelParams[1])});

  add_parameters[1] = &eight;
  cudaKernelNodeParams changed = said;
  changed.kernelParams = add_parameters;
  CHECK_CUDA(cudaGraphExecKernelNodeSetParams(executable, add, &changed));
  CHECK_CUDA(cudaGraphLaunch(executable, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("changed in the executable", data.Download());

  cudaGraph_t other;
  CHECK_CUDA(cudaGraphCreate(&other, 0));
  cudaGraphNode_t node;
  cudaGraphExec_t alone;
  // What the documentation forbids. (Of a graph that moves into itself it says nothing: natively the call succeeds and
  // leaves a graph that cannot be destroyed.)
  std::vector<uint32_t> refused;
  const auto mistake = [&](const char* what, cudaError_t error) {
    printf("%s: %d\n", what, static_cast<int>(error));
    refused.push_back(error != cudaSuccess);
  };
  mistake("instantiate a moved graph", cudaGraphInstantiate(&alone, child, 0));
  mistake("add a moved graph to another", cudaGraphAddChildGraphNode(&node, other, nullptr, 0, child));
  mistake("move a moved graph", Move(&node, other, {}, child));
  results.Add("refused", refused);
  cudaGetLastError();
  CHECK_CUDA(cudaGraphDestroy(other));
  CHECK_CUDA(cudaGraphExecDestroy(executable));
  CHECK_CUDA(cudaGraphDestroy(parent));  // and the child with it
}

// A captured graph that allocates: only as a moved child may it be part of another.
void WithMemory(Results& results, cudaStream_t stream) {
  check::DeviceBuffer<uint32_t> out(kCount);
  cudaGraph_t child, parent;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  uint32_t* temporary;
  CHECK_CUDA(cudaMallocAsync(&temporary, kCount * 4, stream));
  Iota<<<kBlocks, 128, 0, stream>>>(temporary);
  Affine<<<kBlocks, 128, 0, stream>>>(temporary, out.get(), 2, 1);
  CHECK_CUDA(cudaFreeAsync(temporary, stream));
  CHECK_CUDA(cudaStreamEndCapture(stream, &child));
  CHECK_CUDA(cudaGraphCreate(&parent, 0));
  cudaGraphNode_t node;
  CHECK_CUDA(Move(&node, parent, {}, child));
  cudaGraphExec_t executable;
  CHECK_CUDA(cudaGraphInstantiate(&executable, parent, 0));
  CHECK_CUDA(cudaGraphDestroy(parent));
  for (const char* name : {"memory of the child", "again"}) {
    out.Zero();
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    results.Add(name, out.Download());
  }
  CHECK_CUDA(cudaGraphExecDestroy(executable));
}

void Device(Results& results) {
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  Moved(results, stream);
  WithMemory(results, stream);
  CHECK_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
