// Managed memory: cudaMallocManaged and a __managed__ variable, written by the host, read and written by kernels, read
// by the host after synchronisation.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 5000, kRounds = 3;

__managed__ uint32_t total = 5;

void Reference(Results& results) {
  std::vector<uint32_t> values(kCount);
  uint32_t sum = 5;
  for (uint32_t i = 0; i < kCount; ++i) values[i] = i;
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t i = 0; i < kCount; ++i) {
      values[i] = values[i] * 3 + round;
      sum += values[i] & 15;
    }
    values[0] += 1000;
    results.Add("values", values);
  }
  results.AddValue("total", sum);
}

__global__ void Step(uint32_t* values, uint32_t round) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= kCount) return;
  values[i] = values[i] * 3 + round;
  atomicAdd(&total, values[i] & 15);
}

void Device(Results& results) {
  uint32_t* values;
  CHECK_CUDA(cudaMallocManaged(&values, kCount * sizeof(uint32_t)));
  for (uint32_t i = 0; i < kCount; ++i) values[i] = i;
  for (uint32_t round = 0; round < kRounds; ++round) {
    Step<<<(kCount + 127) / 128, 128>>>(values, round);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    values[0] += 1000;
    results.Add("values", values, kCount);
  }
  results.AddValue("total", total);
  CHECK_CUDA(cudaFree(values));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
