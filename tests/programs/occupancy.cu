// Occupancy queries and function attributes. Their values differ between devices, so the results are relations that
// hold on all: more shared memory never allows more blocks, suggested sizes are launchable, limits fit together.
#include "tests/programs/check.h"

using check::Results;

namespace {

void Reference(Results& results) {
  for (const char* name : {"some blocks fit", "more shared memory, not more blocks", "larger blocks, not more of them",
                           "impossible shared memory", "suggested block launches", "suggested block is whole warps",
                           "available shared memory fits", "threads limit", "static shared memory", "launch bounds",
                           "properties agree with attributes", "device is at least 8.0"}) {
    results.AddValue<uint32_t>(name, 1);
  }
}

__global__ void Plain(uint32_t* out) { out[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x; }
__global__ void WithShared(uint32_t* out) {
  __shared__ uint32_t words[1024];
  words[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = words[blockDim.x - 1 - threadIdx.x];
}
__global__ void __launch_bounds__(64) Bounded(uint32_t* out) { out[threadIdx.x] = 1; }

int BlocksPerMultiprocessor(int threads, size_t shared_bytes) {
  int blocks = -1;
  CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Plain, threads, shared_bytes));
  return blocks;
}

void Device(Results& results) {
  cudaDeviceProp properties;
  CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
  auto add = [&results](const char* name, bool holds) { results.AddValue<uint32_t>(name, holds); };
  int few = BlocksPerMultiprocessor(256, 0);
  add("some blocks fit", few >= 1 && few * 256 <= properties.maxThreadsPerMultiProcessor);
  add("more shared memory, not more blocks", BlocksPerMultiprocessor(64, 40000) <= BlocksPerMultiprocessor(64, 10000));
  add("larger blocks, not more of them", BlocksPerMultiprocessor(1024, 0) <= BlocksPerMultiprocessor(128, 0));
  add("impossible shared memory", BlocksPerMultiprocessor(64, size_t{1} << 20) == 0);
  int grid = 0, block = 0;
  CHECK_CUDA(cudaOccupancyMaxPotentialBlockSize(&grid, &block, Plain));
  bool sizes_sane = grid >= 1 && block >= 32 && block <= properties.maxThreadsPerBlock;
  if (sizes_sane) {
    check::DeviceBuffer<uint32_t> out(static_cast<size_t>(2) * block);
    Plain<<<2, block>>>(out.get());
    sizes_sane = cudaGetLastError() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess &&
                 out.Download()[2 * block - 1] == static_cast<uint32_t>(block - 1);
  }
  add("suggested block launches", sizes_sane);
  add("suggested block is whole warps", block % properties.warpSize == 0);
  size_t available = 0;
  CHECK_CUDA(cudaOccupancyAvailableDynamicSMemPerBlock(&available, Plain, 1, 128));
  add("available shared memory fits", available > 0 && available <= properties.sharedMemPerMultiprocessor);
  cudaFuncAttributes plain, with_shared, bounded;
  CHECK_CUDA(cudaFuncGetAttributes(&plain, Plain));
  CHECK_CUDA(cudaFuncGetAttributes(&with_shared, WithShared));
  CHECK_CUDA(cudaFuncGetAttributes(&bounded, Bounded));
  add("threads limit", plain.maxThreadsPerBlock == properties.maxThreadsPerBlock && plain.numRegs > 0);
  add("static shared memory", plain.sharedSizeBytes == 0 && with_shared.sharedSizeBytes == 4096);
  add("launch bounds", bounded.maxThreadsPerBlock == 64);
  int warp = 0, multiprocessors = 0, opt_in = 0;
  CHECK_CUDA(cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, 0));
  CHECK_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  CHECK_CUDA(cudaDeviceGetAttribute(&opt_in, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  add("properties agree with attributes", warp == 32 && properties.warpSize == 32 &&
                                              multiprocessors == properties.multiProcessorCount &&
                                              static_cast<size_t>(opt_in) == properties.sharedMemPerBlockOptin);
  add("device is at least 8.0", properties.major >= 8);
}

}  // namespace

int main(int argc, char** argv) { return check::RunProgram(argc, argv, Reference, Device); }
