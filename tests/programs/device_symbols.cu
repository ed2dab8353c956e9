// __device__ and __constant__ variables: initial values, cudaMemcpyToSymbol and FromSymbol (with offsets, async,
// device to device), cudaGetSymbolAddress and Size, a pointer stored in a symbol, and constants that change between
// launches of one stream.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 300;

__device__ int counters[8] = {10, 20, 30, 40, 50, 60, 70, 80};
__constant__ int coefficients[16] = {1, -1, 2, -2, 3, -3};
__constant__ struct {
  double scale;
  uint8_t bytes[5];
} settings = {0.25, {1, 2, 3, 4, 5}};
__device__ int* indirect;
__device__ uint64_t uninitialised[4];

void Reference(Results& results) {
  results.Add("initial", std::vector<int>{10, 20, 30, 40, 50, 60, 70, 80});
  results.Add("offset", std::vector<int>{10, 20, 777, 778, 50, 60, 70, 80});
  std::vector<int> out;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kCount; ++i)
      out.push_back(i * (i % 16 == 2 ? 100 + round : i % 16 < 6 ? (i % 16 / 2 + 1) * (i % 2 ? -1 : 1) : 0) + 3);
  }
  results.Add("constants", out);
  results.Add("through pointer", std::vector<int>{5, 25, 782, 783});
  results.Add("sizes", std::vector<uint64_t>{sizeof(int) * 8, sizeof(int) * 16, 16, sizeof(void*)});
  results.Add("zero until written", std::vector<uint64_t>{0, 0, 0, 0});
}

__global__ void UseConstants(int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kCount) out[i] = i * coefficients[i % 16] + static_cast<int>(settings.scale * 4.0) + settings.bytes[1];
}

__global__ void AddThroughPointer(int value) { indirect[threadIdx.x] += value; }

void Device(Results& results) {
  int host[8];
  CHECK_CUDA(cudaMemcpyFromSymbol(host, counters, sizeof(host)));
  results.Add("initial", host, 8);
  int pair[2] = {777, 778};
  CHECK_CUDA(cudaMemcpyToSymbol(counters, pair, sizeof(pair), 2 * sizeof(int)));
  CHECK_CUDA(cudaMemcpyFromSymbol(host, counters, sizeof(host)));
  results.Add("offset", host, 8);

  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));
  check::DeviceBuffer<int> out(3 * kCount);
  for (int round = 0; round < 3; ++round) {
    int changed = 100 + round;
    CHECK_CUDA(
        cudaMemcpyToSymbolAsync(coefficients, &changed, sizeof(int), 2 * sizeof(int), cudaMemcpyHostToDevice, stream));
    UseConstants<<<3, 100, 0, stream>>>(out.get() + round * kCount);
    CHECK_LAUNCH();
  }
  CHECK_CUDA(cudaStreamSynchronize(stream));
  results.Add("constants", out.Download());

  void *counters_address, *constant_address;
  CHECK_CUDA(cudaGetSymbolAddress(&counters_address, counters));
  CHECK_CUDA(cudaGetSymbolAddress(&constant_address, coefficients));
  check::DeviceBuffer<int> four(4);
  CHECK_CUDA(cudaMemcpyFromSymbol(four.get(), counters, 4 * sizeof(int), 0, cudaMemcpyDeviceToDevice));
  int* target = four.get();
  CHECK_CUDA(cudaMemcpyToSymbol(indirect, &target, sizeof(target)));
  int minus_five[1] = {-5};
  CHECK_CUDA(cudaMemcpy(static_cast<int*>(counters_address), minus_five, sizeof(int), cudaMemcpyHostToDevice));
  AddThroughPointer<<<1, 4>>>(5);
  CHECK_LAUNCH();
  CHECK_CUDA(cudaMemcpy(four.get(), counters_address, sizeof(int), cudaMemcpyDeviceToDevice));  // -5, replaced below
  AddThroughPointer<<<1, 1>>>(10);
  CHECK_LAUNCH();
  results.Add("through pointer", four.Download());

  size_t sizes[4];
  CHECK_CUDA(cudaGetSymbolSize(&sizes[0], counters));
  CHECK_CUDA(cudaGetSymbolSize(&sizes[1], coefficients));
  CHECK_CUDA(cudaGetSymbolSize(&sizes[2], settings));
  CHECK_CUDA(cudaGetSymbolSize(&sizes[3], indirect));
  results.Add("sizes", std::vector<uint64_t>(sizes, sizes + 4));
  uint64_t zeros[4] = {1, 1, 1, 1};
  CHECK_CUDA(cudaMemcpyFromSymbol(zeros, uninitialised, sizeof(zeros)));
  results.Add("zero until written", zeros, 4);
  CHECK_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
