// Histograms of skewed bytes: shared-memory counters per block merged by global atomics, and warp-aggregated counting
// by __match_any_sync.
#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kCount = 60000, kThreads = 256, kBlocks = 16, kBins = 256;

std::vector<uint8_t> Source() {
  std::vector<uint8_t> values = check::RandomIntegers<uint8_t>(kCount, 71);
  for (size_t i = 0; i < values.size(); i += 3) values[i] = values[i] / 16;  // many equal ones
  return values;
}

void Reference(Results& results) {
  std::vector<uint32_t> bins(kBins, 0);
  for (uint8_t value : Source()) ++bins[value];
  results.Add("shared counters", bins);
  results.Add("warp-aggregated", bins);
}

__global__ void CountShared(const uint8_t* in, uint32_t* bins) {
  __shared__ uint32_t counts[kBins];
  counts[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < kCount; i += gridDim.x * kThreads)
    atomicAdd(&counts[in[i]], 1u);
  __syncthreads();
  if (counts[threadIdx.x] != 0) atomicAdd(&bins[threadIdx.x], counts[threadIdx.x]);
}

__global__ void CountAggregated(const uint8_t* in, uint32_t* bins) {
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < kCount; i += gridDim.x * kThreads) {
    uint32_t same = __match_any_sync(__activemask(), static_cast<uint32_t>(in[i]));
    if (__ffs(same) - 1 == static_cast<int>(threadIdx.x % 32)) atomicAdd(&bins[in[i]], __popc(same));
  }
}

void Device(Results& results) {
  check::DeviceBuffer<uint8_t> in(Source());
  check::DeviceBuffer<uint32_t> bins(kBins);
  bins.Zero();
  CountShared<<<kBlocks, kThreads>>>(in.get(), bins.get());
  CHECK_LAUNCH();
  results.Add("shared counters", bins.Download());
  bins.Zero();
  CountAggregated<<<kBlocks, kThreads>>>(in.get(), bins.get());
  CHECK_LAUNCH();
  results.Add("warp-aggregated", bins.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
