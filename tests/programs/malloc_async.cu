// Stream-ordered allocation: cudaMallocAsync and cudaFreeAsync between kernels, memory handed from one stream to
// another by an event, a pool of its own with a release threshold, and memory freed in a stream while still in use.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 2000, kRounds = 20;

void Reference(Results& results) {
  std::vector<uint64_t> sums;
  for (uint64_t round = 0; round < kRounds; ++round) {
    uint64_t count = kCount - round * 10;
    sums.push_back(count * (count - 1) / 2 * (round + 1));
  }
  results.Add("one stream", sums);
  results.AddValue<uint64_t>("two streams", uint64_t{kCount} * (kCount - 1) / 2 * 77);
  results.AddValue<uint64_t>("own pool", uint64_t{kCount} * (kCount - 1) / 2 * 5);
  results.AddValue<uint64_t>("threshold", 1 << 20);
  results.AddValue<uint32_t>("pool in use after free", 0);
}

__global__ void Fill(uint64_t* values, int count, uint64_t factor) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = i * factor;
}

__global__ void Sum(const uint64_t* values, int count, unsigned long long* sum) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) atomicAdd(sum, static_cast<unsigned long long>(values[i]));
}

void Device(Results& results) {
  cudaStream_t first, second;
  CHECK_CUDA(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK_CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  check::DeviceBuffer<unsigned long long> sums(kRounds);
  sums.Zero();
  CHECK_CUDA(cudaDeviceSynchronize());
  for (int round = 0; round < kRounds; ++round) {
    int count = kCount - round * 10;
    uint64_t* values;
    CHECK_CUDA(cudaMallocAsync(&values, count * sizeof(uint64_t), first));
    Fill<<<8, 256, 0, first>>>(values, count, round + 1);
    Sum<<<8, 256, 0, first>>>(values, count, sums.get() + round);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaFreeAsync(values, first));
  }
  CHECK_CUDA(cudaStreamSynchronize(first));
  std::vector<unsigned long long> found = sums.Download();
  results.Add("one stream", std::vector<uint64_t>(found.begin(), found.end()));

  sums.Zero();
  CHECK_CUDA(cudaDeviceSynchronize());
  uint64_t* values;
  cudaEvent_t filled;
  CHECK_CUDA(cudaEventCreate(&filled));
  CHECK_CUDA(cudaMallocAsync(&values, kCount * sizeof(uint64_t), first));
  Fill<<<8, 256, 0, first>>>(values, kCount, 77);
  CHECK_CUDA(cudaEventRecord(filled, first));
  CHECK_CUDA(cudaStreamWaitEvent(second, filled, 0));
  Sum<<<8, 256, 0, second>>>(values, kCount, sums.get());
  CHECK_LAUNCH();
  CHECK_CUDA(cudaFreeAsync(values, second));
  CHECK_CUDA(cudaStreamSynchronize(second));
  results.AddValue("two streams", static_cast<uint64_t>(sums.Download()[0]));

  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = 0;
  cudaMemPool_t pool;
  CHECK_CUDA(cudaMemPoolCreate(&pool, &properties));
  uint64_t threshold = 1 << 20;
  CHECK_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  sums.Zero();
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaMallocFromPoolAsync(&values, kCount * sizeof(uint64_t), pool, first));
  Fill<<<8, 256, 0, first>>>(values, kCount, 5);
  Sum<<<8, 256, 0, first>>>(values, kCount, sums.get());
  CHECK_CUDA(cudaFreeAsync(values, first));
  CHECK_CUDA(cudaStreamSynchronize(first));
  results.AddValue("own pool", static_cast<uint64_t>(sums.Download()[0]));
  threshold = 0;
  CHECK_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  results.AddValue("threshold", threshold);
  uint64_t used = 1;
  CHECK_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  results.AddValue<uint32_t>("pool in use after free", static_cast<uint32_t>(used));
  CHECK_CUDA(cudaMemPoolTrimTo(pool, 0));
  CHECK_CUDA(cudaMemPoolDestroy(pool));
  CHECK_CUDA(cudaEventDestroy(filled));
  CHECK_CUDA(cudaStreamDestroy(first));
  CHECK_CUDA(cudaStreamDestroy(second));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
