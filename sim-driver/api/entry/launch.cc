// Launches and occupancy.
#include "sim-driver/api/launch.h"

#include <algorithm>

#include "sim-driver/api/entry/entry.h"
#include "sim-driver/api/occupancy.h"

using namespace tally::sim_driver;

namespace {

constexpr unsigned kKnownOccupancyFlags = CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE;

void BestBlock(int* min_grid, int* block, CUfunction function, CUoccupancyB2DSize dynamic_of, size_t dynamic,
               int limit) {
  EnterContext();
  RequireOut(min_grid);
  RequireOut(block);
  const KernelCode code = FindKernelCode(function);
  int most = static_cast<int>(MaxThreadsPerBlock(code.kernel()));
  if (limit > 0) most = std::min(most, limit);
  int best = 0;
  uint64_t best_threads = 0;
  uint32_t best_blocks = 0;
  const auto attempt = [&](int size) {
    const uint32_t blocks = MaxBlocksPerMultiprocessor(code.kernel(), static_cast<uint64_t>(size),
                                                       dynamic_of != nullptr ? dynamic_of(size) : dynamic);
    const uint64_t threads = uint64_t{blocks} * static_cast<uint64_t>(size);
    if (threads <= best_threads) return;
    best_threads = threads;
    best = size;
    best_blocks = blocks;
  };
  constexpr int kWarp = MachineLimits::kWarpSize;
  // Largest first: of equally good sizes the largest is taken.
  if (most % kWarp != 0) attempt(most);
  for (int size = most / kWarp * kWarp; size > 0; size -= kWarp) attempt(size);
  *block = best;
  *min_grid = static_cast<int>(best_blocks * MachineLimits::kNumSms);
}

uint64_t BlocksPerCluster(const CUlaunchConfig& config, const KernelCode& code) {
  uint64_t blocks = 0;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const auto& dimension = config.attrs[i].value.clusterDim;
    constexpr unsigned kMost = MachineLimits::kMaxBlocksPerCluster;
    if (dimension.x > kMost || dimension.y > kMost || dimension.z > kMost) return kMost + 1;
    blocks = uint64_t{dimension.x} * dimension.y * dimension.z;
  }
  if (blocks != 0) return blocks;
  uint64_t required = 1;
  for (const auto& size : code.settings->required_cluster) {
    required *= static_cast<uint64_t>(std::clamp(size.load(), 1, 64));
  }
  return required;
}

}  // namespace

TALLY_EXPORT CUresult CUDAAPI cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                             unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                             unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                             void** kernelParams, void** extra) {
  TALLY_ENTRY({
    IssueLaunch(UseStream(hStream), {.function = f,
                                     .grid = {gridDimX, gridDimY, gridDimZ},
                                     .block = {blockDimX, blockDimY, blockDimZ},
                                     .dynamic_shared_bytes = sharedMemBytes,
                                     .parameters = kernelParams,
                                     .extra = extra});
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                                               void** extra) {
  TALLY_ENTRY({
    RequireInitialized();
    RequireOut(config);
    Require(config->numAttrs == 0 || config->attrs != nullptr, CUDA_ERROR_INVALID_VALUE);
    IssueLaunch(UseStream(config->hStream), {.function = f,
                                             .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                                             .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                                             .dynamic_shared_bytes = config->sharedMemBytes,
                                             .parameters = kernelParams,
                                             .extra = extra,
                                             .attributes = {config->attrs, config->numAttrs}});
  });
}

TALLY_EXPORT CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                                        unsigned int gridDimZ, unsigned int blockDimX,
                                                        unsigned int blockDimY, unsigned int blockDimZ,
                                                        unsigned int sharedMemBytes, CUstream hStream,
                                                        void** kernelParams) {
  TALLY_ENTRY({
    IssueLaunch(UseStream(hStream), {.function = f,
                                     .grid = {gridDimX, gridDimY, gridDimZ},
                                     .block = {blockDimX, blockDimY, blockDimZ},
                                     .dynamic_shared_bytes = sharedMemBytes,
                                     .parameters = kernelParams,
                                     .is_cooperative = true});
  });
}

TALLY_EXPORT CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func,
                                                                                   int blockSize,
                                                                                   size_t dynamicSMemSize,
                                                                                   unsigned int flags) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(numBlocks);
    Require(blockSize > 0 && (flags & ~kKnownOccupancyFlags) == 0, CUDA_ERROR_INVALID_VALUE);
    *numBlocks = static_cast<int>(
        MaxBlocksPerMultiprocessor(FindKernelCode(func).kernel(), static_cast<uint64_t>(blockSize), dynamicSMemSize));
  });
}

TALLY_EXPORT CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func,
                                                                          int blockSize, size_t dynamicSMemSize) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize, dynamicSMemSize, 0);
}

TALLY_EXPORT CUresult CUDAAPI cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize,
                                                                        CUfunction func,
                                                                        CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                                        size_t dynamicSMemSize, int blockSizeLimit,
                                                                        unsigned int flags) {
  TALLY_ENTRY({
    Require((flags & ~kKnownOccupancyFlags) == 0, CUDA_ERROR_INVALID_VALUE);
    BestBlock(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit);
  });
}

TALLY_EXPORT CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                                               CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                               size_t dynamicSMemSize, int blockSizeLimit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                                   dynamicSMemSize, blockSizeLimit, 0);
}

TALLY_EXPORT CUresult CUDAAPI cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func,
                                                                      int numBlocks, int blockSize) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(dynamicSmemSize);
    Require(numBlocks > 0 && blockSize > 0, CUDA_ERROR_INVALID_VALUE);
    *dynamicSmemSize = AvailableDynamicShared(FindKernelCode(func).kernel(), static_cast<uint32_t>(numBlocks),
                                              static_cast<uint64_t>(blockSize));
  });
}

TALLY_EXPORT CUresult CUDAAPI cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func,
                                                                 const CUlaunchConfig* config) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(clusterSize);
    RequireOut(config);
    const KernelCode code = FindKernelCode(func);
    const Dim3 block{config->blockDimX, config->blockDimY, config->blockDimZ};
    int best = 0;
    for (uint32_t size = 1; size <= MachineLimits::kMaxBlocksPerCluster; size *= 2) {
      if (MaxActiveClusters(code.kernel(), block, config->sharedMemBytes, size) > 0) best = static_cast<int>(size);
    }
    *clusterSize = best;
  });
}

TALLY_EXPORT CUresult CUDAAPI cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func,
                                                           const CUlaunchConfig* config) {
  TALLY_ENTRY({
    EnterContext();
    RequireOut(numClusters);
    RequireOut(config);
    Require(config->numAttrs == 0 || config->attrs != nullptr, CUDA_ERROR_INVALID_VALUE);
    const KernelCode code = FindKernelCode(func);
    const uint64_t blocks = BlocksPerCluster(*config, code);
    Require(blocks <= MachineLimits::kMaxBlocksPerCluster, CUDA_ERROR_INVALID_CLUSTER_SIZE);
    const Dim3 block{config->blockDimX, config->blockDimY, config->blockDimZ};
    *numClusters = static_cast<int>(MaxActiveClusters(code.kernel(), block, config->sharedMemBytes, blocks));
  });
}
