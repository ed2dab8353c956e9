// Copies from global to shared memory that run beside the threads: cp.async in groups (a two-stage pipeline), and
// mbarriers: arrive and wait by phase, and cp.async arrivals on an mbarrier.
#include <cuda_pipeline.h>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kBlocks = 6, kThreads = 64, kTiles = 10, kTileWords = kThreads * 4;

std::vector<uint32_t> Source() { return check::RandomIntegers<uint32_t>(kBlocks * kTiles * kTileWords, 151); }

void Reference(Results& results) {
  std::vector<uint32_t> in = Source(), out;
  for (int block = 0; block < kBlocks; ++block)
    for (int thread = 0; thread < kThreads; ++thread) {
      uint32_t hash = 1;
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint32_t* words = &in[(block * kTiles + tile) * kTileWords];
        for (int k = 0; k < 4; ++k) hash = hash * 31 + words[(kThreads - 1 - thread) * 4 + k];
      }
      out.push_back(hash);
    }
  results.Add("pipeline", out);
  std::vector<uint32_t> sums;
  for (int block = 0; block < kBlocks; ++block)
    for (int thread = 0; thread < kThreads; ++thread) {
      uint32_t sum = 0;
      for (int phase = 0; phase < 8; ++phase) sum = sum * 7 + ((thread + 1) % kThreads) * 10 + phase + block;
      sums.push_back(sum);
    }
  results.Add("mbarrier phases", sums);
  std::vector<uint32_t> first_tile;
  for (int block = 0; block < kBlocks; ++block)
    for (int i = 0; i < kThreads; ++i) first_tile.push_back(in[block * kTiles * kTileWords + kThreads - 1 - i] + 1);
  results.Add("mbarrier and cp.async", first_tile);
}

__global__ void Pipeline(const uint32_t* in, uint32_t* out) {
  __shared__ alignas(16) uint32_t buffers[2][kTileWords];
  int thread = threadIdx.x;
  const uint32_t* mine = in + blockIdx.x * kTiles * kTileWords;
  auto fetch = [&](int tile) {
    if (tile < kTiles) {
      __pipeline_memcpy_async(&buffers[tile % 2][thread * 4], mine + tile * kTileWords + thread * 4, 16);
    }
    __pipeline_commit();
  };
  fetch(0);
  uint32_t hash = 1;
  for (int tile = 0; tile < kTiles; ++tile) {
    fetch(tile + 1);
    __pipeline_wait_prior(1);
    __syncthreads();
    for (int k = 0; k < 4; ++k) hash = hash * 31 + buffers[tile % 2][(kThreads - 1 - thread) * 4 + k];
    __syncthreads();
  }
  out[blockIdx.x * kThreads + thread] = hash;
}

__device__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ void InitBarrier(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(count) : "memory");
}

__device__ void ArriveAndWait(uint64_t* barrier) {
  uint64_t token;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(SharedAddress(barrier)) : "memory");
  uint32_t done = 0;
  while (!done) {
    asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(SharedAddress(barrier)), "l"(token)
                 : "memory");
  }
}

__global__ void Phases(uint32_t* out) {
  __shared__ uint64_t barrier;
  __shared__ uint32_t values[kThreads];
  if (threadIdx.x == 0) InitBarrier(&barrier, kThreads);
  __syncthreads();
  uint32_t sum = 0;
  for (int phase = 0; phase < 8; ++phase) {
    values[threadIdx.x] = threadIdx.x * 10 + phase + blockIdx.x;
    ArriveAndWait(&barrier);
    sum = sum * 7 + values[(threadIdx.x + 1) % kThreads];
    ArriveAndWait(&barrier);
  }
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

__global__ void CopyWithBarrier(const uint32_t* in, uint32_t* out) {
  __shared__ uint64_t barrier;
  __shared__ uint32_t values[kThreads];
  if (threadIdx.x == 0) InitBarrier(&barrier, kThreads);
  __syncthreads();
  const uint32_t* source = in + blockIdx.x * kTiles * kTileWords + threadIdx.x;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(SharedAddress(&values[threadIdx.x])), "l"(source)
               : "memory");
  // Adds one pending arrival now and arrives once when this thread's copies are done.
  asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(SharedAddress(&barrier)) : "memory");
  ArriveAndWait(&barrier);
  out[blockIdx.x * kThreads + threadIdx.x] = values[kThreads - 1 - threadIdx.x] + 1;
}

void Device(Results& results) {
  check::DeviceBuffer<uint32_t> in(Source()), out(kBlocks * kThreads);
  Pipeline<<<kBlocks, kThreads>>>(in.get(), out.get());
  CHECK_LAUNCH();
  results.Add("pipeline", out.Download());
  Phases<<<kBlocks, kThreads>>>(out.get());
  CHECK_LAUNCH();
  results.Add("mbarrier phases", out.Download());
  CopyWithBarrier<<<kBlocks, kThreads>>>(in.get(), out.get());
  CHECK_LAUNCH();
  results.Add("mbarrier and cp.async", out.Download());
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
