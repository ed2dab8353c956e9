// Memory that graphs allocate for themselves: cudaMallocAsync and cudaFreeAsync in a capture, memory nodes built by
// hand, an allocation that outlives its graph's launch, and the devices' graph memory attributes.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 3000, kReplays = 5;

void Reference(Results& results) {
  for (uint32_t replay = 0; replay < kReplays; ++replay) {
    std::vector<uint32_t> out(kCount);
    for (uint32_t i = 0; i < kCount; ++i) out[i] = (i + replay) * 7 + 1;
    results.Add("captured", out);
  }
  std::vector<uint32_t> built(kCount, 0x05050505u);
  results.Add("built", built);
  results.Add("node", std::vector<uint64_t>{kCount * 4, 1, 1});
  std::vector<uint32_t> kept(kCount);
  for (uint32_t i = 0; i < kCount; ++i) kept[i] = i * 2;
  results.Add("outlives the launch", kept);
  results.AddValue<uint32_t>("attributes", 1);
}

__global__ void Fill(uint32_t* out, const uint32_t* start) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) out[i] = i + *start;
}
__global__ void Affine(const uint32_t* in, uint32_t* out, uint32_t factor, uint32_t constant) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) out[i] = in[i] * factor + constant;
}
constexpr int kBlocks = (kCount + 127) / 128;

void Captured(Results& results, cudaStream_t stream) {
  check::DeviceBuffer<uint32_t> start(1), out(kCount);
  cudaGraph_t graph;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  uint32_t* temporary;
  CHECK_CUDA(cudaMallocAsync(&temporary, kCount * 4, stream));
  Fill<<<kBlocks, 128, 0, stream>>>(temporary, start.get());
  Affine<<<kBlocks, 128, 0, stream>>>(temporary, out.get(), 7, 1);
  CHECK_CUDA(cudaFreeAsync(temporary, stream));
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable;
  CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  for (uint32_t replay = 0; replay < kReplays; ++replay) {
    start.Upload({replay});
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    results.Add("captured", out.Download());
  }
  CHECK_CUDA(cudaGraphExecDestroy(executable));
  CHECK_CUDA(cudaGraphDestroy(graph));
}

void Built(Results& results, cudaStream_t stream) {
  check::DeviceBuffer<uint32_t> out(kCount);
  cudaGraph_t graph;
  CHECK_CUDA(cudaGraphCreate(&graph, 0));
  cudaMemAllocNodeParams allocation = {};
  allocation.poolProps.allocType = cudaMemAllocationTypePinned;
  allocation.poolProps.location.type = cudaMemLocationTypeDevice;
  allocation.bytesize = kCount * 4;
  cudaGraphNode_t alloc_node, fill_node, copy_node, free_node;
  CHECK_CUDA(cudaGraphAddMemAllocNode(&alloc_node, graph, nullptr, 0, &allocation));
  cudaMemsetParams fill = {};
  fill.dst = allocation.dptr;
  fill.elementSize = 1;
  fill.value = 5;
  fill.width = kCount * 4;
  fill.height = 1;
  CHECK_CUDA(cudaGraphAddMemsetNode(&fill_node, graph, &alloc_node, 1, &fill));
  CHECK_CUDA(cudaGraphAddMemcpyNode1D(&copy_node, graph, &fill_node, 1, out.get(), allocation.dptr, kCount * 4,
                                      cudaMemcpyDeviceToDevice));
  CHECK_CUDA(cudaGraphAddMemFreeNode(&free_node, graph, &copy_node, 1, allocation.dptr));
  cudaMemAllocNodeParams said = {};
  CHECK_CUDA(cudaGraphMemAllocNodeGetParams(alloc_node, &said));
  void* freed = nullptr;
  CHECK_CUDA(cudaGraphMemFreeNodeGetParams(free_node, &freed));
  cudaGraphExec_t executable;
  CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  CHECK_CUDA(cudaGraphLaunch(executable, stream));
  CHECK_CUDA(cudaGraphLaunch(executable, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("built", out.Download());
  results.Add("node", std::vector<uint64_t>{said.bytesize, said.dptr == allocation.dptr, freed == allocation.dptr});
  CHECK_CUDA(cudaGraphExecDestroy(executable));
  CHECK_CUDA(cudaGraphDestroy(graph));
}

// Allocated by the graph, used and freed by the program.
void Outlives(Results& results, cudaStream_t stream) {
  check::DeviceBuffer<uint32_t> zero(1);
  zero.Zero();
  cudaGraph_t graph;
  CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  uint32_t* kept;
  CHECK_CUDA(cudaMallocAsync(&kept, kCount * 4, stream));
  Fill<<<kBlocks, 128, 0, stream>>>(kept, zero.get());
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable;
  CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  std::vector<uint32_t> values(kCount);
  for (int i = 0; i < 2; ++i) {
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    Affine<<<kBlocks, 128, 0, stream>>>(kept, kept, 2, 0);
    CHECK_CUDA(cudaMemcpyAsync(values.data(), kept, kCount * 4, cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    if (i == 0) CHECK_CUDA(cudaFreeAsync(kept, stream));
  }
  CHECK_CUDA(cudaFree(kept));
  CHECK_CUDA(cudaGraphExecDestroy(executable));
  CHECK_CUDA(cudaGraphDestroy(graph));
  results.Add("outlives the launch", values);
}

void Device(Results& results) {
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  Captured(results, stream);
  Built(results, stream);
  Outlives(results, stream);
  uint64_t high = 0, now = 1;
  CHECK_CUDA(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &high));
  CHECK_CUDA(cudaDeviceGraphMemTrim(0));
  now = 0;
  CHECK_CUDA(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &now));
  CHECK_CUDA(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &now));
  results.AddValue<uint32_t>("attributes", high >= kCount * 4 && now <= high);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
