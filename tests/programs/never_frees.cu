// A program that frees, destroys and waits for nothing: memory, pinned memory, streams, events, graphs and a kernel
// still running when it ends. Started several times in a row, each run finds what the first one found.
#include "tests/programs/child_case.h"

using check::Results;

namespace {

constexpr int kRuns = 3;

void Reference(Results& results) {
  for (int run = 0; run < kRuns; ++run) {
    results.AddText("output", "sum 499500\n");
    results.AddValue<int>("exit status", 0);
  }
}

__global__ void Fill(uint32_t* values) {
  values[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x * blockDim.x + threadIdx.x;
}
__global__ void Sleep() {
  for (int i = 0; i < 50; ++i) __nanosleep(1000000);
}

int LeakCase() {
  uint32_t *device = nullptr, *pinned = nullptr;
  for (int i = 0; i < 50; ++i) {
    CHECK_CUDA(cudaMalloc(&device, 1 << 20));
    CHECK_CUDA(cudaMallocHost(&pinned, 1 << 16));
    cudaStream_t stream;
    cudaEvent_t event;
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaEventCreate(&event));
    CHECK_CUDA(cudaEventRecord(event, stream));
    cudaGraph_t graph;
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
  }
  Fill<<<10, 100>>>(device);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaMemcpy(pinned, device, 4000, cudaMemcpyDeviceToHost));
  uint32_t sum = 0;
  for (int i = 0; i < 1000; ++i) sum += pinned[i];
  printf("sum %u\n", sum);
  Sleep<<<1, 1>>>();
  CHECK_LAUNCH();
  return 0;
}

void Device(Results& results) {
  for (int run = 0; run < kRuns; ++run) {
    check::ChildResult child = check::RunCase("leak");
    results.AddText("output", child.output);
    results.AddValue<int>("exit status", child.exit_status);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--case") == 0) return LeakCase();
  return check::RunProgram(argc, argv, Reference, Device);
}
