// Reductions: integer sum by grid-stride loop, shuffles and one atomic per block; float sum in a fixed tree order (so
// its bits are known); minimum with index; and the last-block-done pattern with __threadfence.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 40000, kThreads = 128, kBlocks = 32;
constexpr int kPerThread = (kCount + kThreads * kBlocks - 1) / (kThreads * kBlocks);

std::vector<uint32_t> Integers() { return check::RandomIntegers<uint32_t>(kCount, 61); }
std::vector<float> Floats() { return check::RandomFloats(kCount, 62); }

float TreeSum(std::vector<float> values) {  // 128 values, as the block does it
  for (size_t stride = values.size() / 2; stride > 0; stride /= 2) {
    for (size_t i = 0; i < stride; ++i) values[i] += values[i + stride];
  }
  return values[0];
}

void Reference(Results& results) {
  std::vector<uint32_t> integers = Integers();
  uint64_t sum = 0;
  uint32_t best = 0;
  for (uint32_t i = 0; i < kCount; ++i) {
    sum += integers[i];
    if (integers[i] < integers[best]) best = i;
  }
  results.AddValue("integer sum", sum);
  results.AddValue("index of minimum", best);

  std::vector<float> floats = Floats(), partial(kBlocks);
  for (int block = 0; block < kBlocks; ++block) {
    std::vector<float> per_thread(kThreads, 0.0f);
    for (int thread = 0; thread < kThreads; ++thread) {
      for (int k = 0; k < kPerThread; ++k) {
        int i = (k * kBlocks + block) * kThreads + thread;
        if (i < kCount) per_thread[thread] += floats[i];
      }
    }
    partial[block] = TreeSum(per_thread);
  }
  float total = 0.0f;
  for (float value : partial) total += value;
  results.AddValue("float sum", total);
}

__global__ void SumIntegers(const uint32_t* in, unsigned long long* sum, unsigned long long* minimum) {
  unsigned long long mine = 0, best = ~0ull;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < kCount; i += gridDim.x * blockDim.x) {
    mine += in[i];
    unsigned long long candidate = (static_cast<unsigned long long>(in[i]) << 32) | i;
    best = candidate < best ? candidate : best;
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    mine += __shfl_down_sync(0xffffffffu, mine, offset);
    unsigned long long other = __shfl_xor_sync(0xffffffffu, best, offset);
    best = other < best ? other : best;
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(sum, mine);
    atomicMin(minimum, best);
  }
}

__global__ void SumFloats(const float* in, float* partial, uint32_t* num_done, float* total) {
  __shared__ float shared[kThreads];
  __shared__ bool last;
  float mine = 0.0f;
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < kCount; i += gridDim.x * kThreads) mine += in[i];
  shared[threadIdx.x] = mine;
  for (int stride = kThreads / 2; stride > 0; stride /= 2) {
    __syncthreads();
    if (threadIdx.x < stride) shared[threadIdx.x] += shared[threadIdx.x + stride];
  }
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = shared[0];
    __threadfence();
    last = atomicAdd(num_done, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    const volatile float* finished = partial;
    float sum = 0.0f;
    for (int i = 0; i < kBlocks; ++i) sum += finished[i];
    *total = sum;
  }
}

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> integers(Integers());
  check::DeviceBuffer<unsigned long long> sums(std::vector<unsigned long long>{0, ~0ull});
  SumIntegers<<<kBlocks, kThreads>>>(integers.get(), sums.get(), sums.get() + 1);
  CHECK_LAUNCH();
  std::vector<unsigned long long> found = sums.Download();
  results.AddValue("integer sum", static_cast<uint64_t>(found[0]));
  results.AddValue("index of minimum", static_cast<uint32_t>(found[1]));

  check::DeviceBuffer<float> floats(Floats()), partial(kBlocks), total(1);
  check::DeviceBuffer<uint32_t> num_done(1);
  num_done.Zero();
  SumFloats<<<kBlocks, kThreads>>>(floats.get(), partial.get(), num_done.get(), total.get());
  CHECK_LAUNCH();
  results.AddValue("float sum", total.Download()[0]);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
