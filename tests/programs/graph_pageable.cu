// A graph whose copy nodes name ordinary (pageable) host memory: each replay must read what is there at that time, and
// the result must be there when the stream is done.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 3000, kReplays = 4;

uint32_t Input(uint32_t replay, uint32_t i) { return i * (replay + 2); }

void Reference(Results& results) {
  for (uint32_t replay = 0; replay < kReplays; ++replay) {
    std::vector<uint32_t> out(kCount);
    for (uint32_t i = 0; i < kCount; ++i) out[i] = ~Input(replay, i);
    results.Add("replay", out);
  }
}

__global__ void Invert(uint32_t* values) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) values[i] = ~values[i];
}

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> device(kCount);
  std::vector<uint32_t> in(kCount), out(kCount);
  cudaGraph_t graph;
  CHECK_CUDA(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t upload, invert, download;
  CHECK_CUDA(cudaGraphAddMemcpyNode1D(&upload, graph, nullptr, 0, device.get(), in.data(), device.size_bytes(),
                                      cudaMemcpyHostToDevice));
  uint32_t* pointer = device.get();
  void* arguments[] = {&pointer};
  cudaKernelNodeParams kernel = {};
  kernel.func = reinterpret_cast<void*>(Invert);
  kernel.gridDim = dim3((kCount + 127) / 128);
  kernel.blockDim = dim3(128);
  kernel.kernelParams = arguments;
  CHECK_CUDA(cudaGraphAddKernelNode(&invert, graph, &upload, 1, &kernel));
  CHECK_CUDA(cudaGraphAddMemcpyNode1D(&download, graph, &invert, 1, out.data(), device.get(), device.size_bytes(),
                                      cudaMemcpyDeviceToHost));
  cudaGraphExec_t executable;
  CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  for (uint32_t replay = 0; replay < kReplays; ++replay) {
    for (uint32_t i = 0; i < kCount; ++i) in[i] = Input(replay, i);
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    results.Add("replay", out);
  }
  CHECK_CUDA(cudaGraphExecDestroy(executable));
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
