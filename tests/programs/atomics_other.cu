// Atomics that are not plain integers: float, double, half2 and bfloat162 sums (of small integers, so exact in any
// order), 16-bit compare-and-swap, system scope on host memory, and a spin lock with fences.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tests/programs/check.h"

using check::Results;

namespace {

constexpr int kBlocks = 12, kThreads = 64, kCount = kBlocks * kThreads;

struct Sums {
  double as_double;
  float as_float, half_low, half_high, bfloat_low, bfloat_high;
  uint32_t short_cas, locked, system;
};

void Reference(Results& results) {
  Sums sums = {};
  for (int i = 0; i < kCount; ++i) {
    sums.as_float += static_cast<float>(i);
    sums.as_double += static_cast<double>(i) * 4294967296.0 + 1.0;
    sums.half_low += static_cast<float>(i % 3), sums.half_high += 2.0f;
    // bfloat16 has 8 bits of precision: every partial sum stays below 257.
    sums.bfloat_low += i % 16 == 0 ? 1.0f : 0.0f, sums.bfloat_high += i % 4 == 0 ? 1.0f : 0.0f;
    sums.short_cas = (sums.short_cas + i) & 0xffff;
    sums.locked = sums.locked + i * 3;
    sums.system += i ^ 5;
  }
  results.AddValue("sums", sums);
}

__device__ int lock = 0;
__device__ uint32_t locked_total = 0;
__device__ unsigned short short_word = 0;

__global__ void Accumulate(Sums* sums, __half2* halves, __nv_bfloat162* bfloats, uint32_t* host_word) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&sums->as_float, static_cast<float>(i));
  atomicAdd(&sums->as_double, static_cast<double>(i) * 4294967296.0 + 1.0);
  atomicAdd(halves, __floats2half2_rn(static_cast<float>(i % 3), 2.0f));
  atomicAdd(bfloats, __floats2bfloat162_rn(i % 16 == 0 ? 1.0f : 0.0f, i % 4 == 0 ? 1.0f : 0.0f));
  unsigned short seen = short_word, assumed;
  do {
    assumed = seen;
    seen = atomicCAS(&short_word, assumed, static_cast<unsigned short>(assumed + i));
  } while (seen != assumed);
  atomicAdd_system(host_word, static_cast<unsigned>(i ^ 5));
  // One lane at a time takes the lock: with independent thread scheduling this ends on every device since sm_70.
  bool done = false;
  while (!done) {
    if (atomicCAS(&lock, 0, 1) == 0) {
      __threadfence();
      volatile uint32_t* total = &locked_total;
      *total = *total + i * 3;
      __threadfence();
      atomicExch(&lock, 0);
      done = true;
    }
  }
}

__global__ void Collect(Sums* sums, const __half2* halves, const __nv_bfloat162* bfloats, const uint32_t* host_word) {
  sums->half_low = __low2float(*halves), sums->half_high = __high2float(*halves);
  sums->bfloat_low = __low2float(*bfloats), sums->bfloat_high = __high2float(*bfloats);
  sums->short_cas = short_word, sums->locked = locked_total, sums->system = *host_word;
}

void Device(Results& results) {
  check::DeviceBuffer<Sums> sums(1);
  check::DeviceBuffer<__half2> halves(1);
  check::DeviceBuffer<__nv_bfloat162> bfloats(1);
  sums.Zero();
  halves.Zero();
  bfloats.Zero();
  uint32_t *host_word, *host_word_device;
  CHECK_CUDA(cudaHostAlloc(&host_word, sizeof(uint32_t), cudaHostAllocMapped));
  *host_word = 0;
  CHECK_CUDA(cudaHostGetDevicePointer(&host_word_device, host_word, 0));
  Accumulate<<<kBlocks, kThreads>>>(sums.get(), halves.get(), bfloats.get(), host_word_device);
  CHECK_LAUNCH();
  Collect<<<1, 1>>>(sums.get(), halves.get(), bfloats.get(), host_word_device);
  CHECK_LAUNCH();
  results.AddValue("sums", sums.Download()[0]);
  CHECK_CUDA(cudaFreeHost(host_word));
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
