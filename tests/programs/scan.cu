// Exclusive prefix sum of 50,000 integers in three launches (scan each block, scan the block sums, add them), and the
// same in one launch, where each block waits for its predecessor's sum in global memory (decoupled look-back by one).
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 50000, kThreads = 256, kBlocks = (kCount + kThreads - 1) / kThreads;

std::vector<uint32_t> Source() { return check::RandomIntegers<uint32_t>(kCount, 51); }

void Reference(Results& results) {
  std::vector<uint32_t> values = Source();
  uint32_t sum = 0;
  for (uint32_t& value : values) {
    uint32_t next = sum + value;
    value = sum;
    sum = next;
  }
  results.Add("three launches", values);
  results.Add("one launch", values);
}

// Inclusive scan over the block; `total` is the block's sum.
__device__ uint32_t ScanBlock(uint32_t value, uint32_t* total) {
  __shared__ uint32_t warp_sums[kThreads / 32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int offset = 1; offset < 32; offset *= 2) {
    uint32_t other = __shfl_up_sync(0xffffffffu, value, offset);
    if (lane >= offset) value += other;
  }
  if (lane == 31) warp_sums[warp] = value;
  __syncthreads();
  uint32_t before = 0, all = 0;
  for (int i = 0; i < kThreads / 32; ++i) {
    if (i < warp) before += warp_sums[i];
    all += warp_sums[i];
  }
  *total = all;
  return value + before;
}

__global__ void ScanBlocks(const uint32_t* in, uint32_t* out, uint32_t* sums, int count) {
  int i = blockIdx.x * kThreads + threadIdx.x;
  uint32_t value = i < count ? in[i] : 0, total;
  uint32_t inclusive = ScanBlock(value, &total);
  if (i < count) out[i] = inclusive - value;
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

__global__ void AddSums(uint32_t* out, const uint32_t* sums, int count) {
  int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count) out[i] += sums[blockIdx.x];
}

// Blocks take their number when they start, so a predecessor has always started before.
__global__ void ScanAtOnce(const uint32_t* in, uint32_t* out, uint32_t* next_block, uint32_t* sums, uint32_t* ready) {
  __shared__ uint32_t block, before;
  if (threadIdx.x == 0) block = atomicAdd(next_block, 1u);
  __syncthreads();
  int i = block * kThreads + threadIdx.x;
  uint32_t value = i < kCount ? in[i] : 0, total;
  uint32_t inclusive = ScanBlock(value, &total);
  if (threadIdx.x == 0) {
    before = 0;
    if (block > 0) {
      while (atomicAdd(&ready[block - 1], 0u) == 0) __nanosleep(200);
      __threadfence();
      before = *static_cast<volatile uint32_t*>(&sums[block - 1]);
    }
    sums[block] = before + total;
    __threadfence();
    atomicExch(&ready[block], 1u);
  }
  __syncthreads();
  if (i < kCount) out[i] = inclusive - value + before;
}

void Device(Results& results) {
  static_assert(kBlocks <= kThreads, "the block sums are scanned by one block");
  check::DeviceBuffer<uint32_t> in(Source()), out(kCount), sums(kBlocks), scanned(kBlocks), unused(1);
  ScanBlocks<<<kBlocks, kThreads>>>(in.get(), out.get(), sums.get(), kCount);
  ScanBlocks<<<1, kThreads>>>(sums.get(), scanned.get(), unused.get(), kBlocks);
  AddSums<<<kBlocks, kThreads>>>(out.get(), scanned.get(), kCount);
  CHECK_LAUNCH();
  results.Add("three launches", out.Download());

  check::DeviceBuffer<uint32_t> next_block(1), ready(kBlocks);
  next_block.Zero();
  ready.Zero();
  out.Zero();
  ScanAtOnce<<<kBlocks, kThreads>>>(in.get(), out.get(), next_block.get(), sums.get(), ready.get());
  CHECK_LAUNCH();
  results.Add("one launch", out.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
