// One graph launched again and again, each time on the results of the launch before: kernels, a fill and copies on the
// device, in two branches; on several streams, whose launches of one executable never overlap. Beside high-priority
// work this is what a best-effort program does that has captured its training step.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr uint32_t kCells = 12'000, kThreads = 64, kLaunches = 60, kStreams = 3;

__host__ __device__ uint32_t Mix(uint32_t value) {
  value ^= value >> 16;
  value *= 0x7feb352du;
  value ^= value >> 15;
  return value * 0x846ca68bu;
}

__global__ void AddNeighbours(const uint32_t* from, uint32_t* to) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCells) to[i] = Mix(from[i] + 3 * from[(i + 1) % kCells] + 5 * from[(i + 77) % kCells]);
}

// Dynamic shared memory, a grid of two dimensions.
__global__ void SumBlocks(const uint32_t* from, uint32_t* sums) {
  extern __shared__ uint32_t part[];
  const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x, i = block * blockDim.x + threadIdx.x;
  part[threadIdx.x] = i < kCells ? from[i] : 0;
  __syncthreads();
  for (uint32_t step = blockDim.x / 2; step != 0; step /= 2) {
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(&sums[block % 16], part[0]);
}

__global__ void Combine(const uint32_t* from, const uint32_t* sums, uint32_t* cells, uint32_t* counter) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCells) cells[i] = cells[i] * 5 + from[i] + sums[i % 16];
  if (i == 0) ++*counter;
}

uint32_t First(uint32_t i) { return Mix(i + 1); }

void Reference(Results& results) {
  std::vector<uint32_t> cells(kCells), next(kCells), kept;
  for (uint32_t i = 0; i < kCells; ++i) cells[i] = First(i);
  for (uint32_t launch = 0; launch < kLaunches; ++launch) {
    for (uint32_t i = 0; i < kCells; ++i)
      next[i] = Mix(cells[i] + 3 * cells[(i + 1) % kCells] + 5 * cells[(i + 77) % kCells]);
    std::vector<uint32_t> sums(16, 0x02020202u);
    for (uint32_t i = 0; i < kCells; ++i) sums[i / kThreads % 16] += cells[i];
    kept = cells;
    for (uint32_t i = 0; i < kCells; ++i) cells[i] = cells[i] * 5 + next[i] + sums[i % 16];
  }
  results.Add("cells", cells);
  results.Add("before the last launch", kept);
  results.AddValue<uint32_t>("launches counted on the device", kLaunches);
}

void Device(Results& results) {
  std::vector<uint32_t> first(kCells);
  for (uint32_t i = 0; i < kCells; ++i) first[i] = First(i);
  check::DeviceBuffer<uint32_t> cells(first), next(kCells), sums(16), kept(kCells), counter(1);
  counter.Zero();
  cudaStream_t streams[kStreams], side;
  for (cudaStream_t& stream : streams) CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  cudaEvent_t forked, joined;
  CHECK_CUDA(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
  CHECK_CUDA(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  const uint32_t blocks = (kCells + kThreads - 1) / kThreads;
  CHECK_CUDA(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal));
  CHECK_CUDA(cudaEventRecord(forked, streams[0]));
  CHECK_CUDA(cudaStreamWaitEvent(side, forked, 0));
  AddNeighbours<<<blocks, kThreads, 0, streams[0]>>>(cells.get(), next.get());
  CHECK_CUDA(cudaMemsetAsync(sums.get(), 2, 16 * sizeof(uint32_t), side));
  SumBlocks<<<dim3(4, (blocks + 3) / 4), kThreads, kThreads * sizeof(uint32_t), side>>>(cells.get(), sums.get());
  CHECK_CUDA(cudaMemcpyAsync(kept.get(), cells.get(), kCells * sizeof(uint32_t), cudaMemcpyDeviceToDevice, side));
  CHECK_CUDA(cudaEventRecord(joined, side));
  CHECK_CUDA(cudaStreamWaitEvent(streams[0], joined, 0));
  Combine<<<blocks, kThreads, 0, streams[0]>>>(next.get(), sums.get(), cells.get(), counter.get());
  cudaGraph_t graph;
  CHECK_CUDA(cudaStreamEndCapture(streams[0], &graph));
  cudaGraphExec_t executable;
  CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaDeviceSynchronize());
  for (uint32_t launch = 0; launch < kLaunches; ++launch) {
    CHECK_CUDA(cudaGraphLaunch(executable, streams[launch / 4 % kStreams]));
    if (launch % 16 == 15) CHECK_CUDA(cudaDeviceSynchronize());
  }
  CHECK_CUDA(cudaDeviceSynchronize());
  results.Add("cells", cells.Download());
  results.Add("before the last launch", kept.Download());
  results.AddValue("launches counted on the device", counter.Download()[0]);
  CHECK_CUDA(cudaGraphExecDestroy(executable));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
