// cudaDeviceReset ends everything of the device's context; the next call starts afresh: symbols have their initial
// values again, and kernels, memory and streams work as on the first day. Three times.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kLives = 3;

__device__ int counter = 100;

void Reference(Results& results) {
  for (int life = 0; life < kLives; ++life) {
    results.Add("counter", std::vector<int>{100, 101});
    results.AddValue<uint32_t>("sum", 64 * 63 / 2 + 64 * life);
  }
}

__global__ void Work(uint32_t* sum, uint32_t extra) {
  atomicAdd(sum, threadIdx.x + extra);
  if (threadIdx.x == 0) ++counter;
}

void Device(Results& results) {
  for (int life = 0; life < kLives; ++life) {
    std::vector<int> counters(2);
    CHECK_CUDA(cudaMemcpyFromSymbol(&counters[0], counter, sizeof(int)));
    cudaStream_t stream;
    uint32_t *sum, *host;
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaMalloc(&sum, sizeof(uint32_t)));
    CHECK_CUDA(cudaMallocHost(&host, sizeof(uint32_t)));
    CHECK_CUDA(cudaMemsetAsync(sum, 0, sizeof(uint32_t), stream));
    Work<<<1, 64, 0, stream>>>(sum, life);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpyAsync(host, sum, sizeof(uint32_t), cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaMemcpyFromSymbol(&counters[1], counter, sizeof(int)));
    results.Add("counter", counters);
    results.AddValue("sum", *host);
    CHECK_CUDA(cudaDeviceReset());  // stream, sum and host end with it
  }
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
