// CUDA manual: Occupancy. The executor answers, the client remembers.
#include <algorithm>
#include <cstring>
#include <string>

#include "client-shim/entry/guard.h"
#include "client-shim/entry/launch_record.h"
#include "client-shim/state/process.h"
#include "proto/driver/generated/client_calls.h"

namespace tally::client_shim::entry {
namespace {

CUresult ActiveBlocks(int* blocks, CUfunction function, int block_size, size_t shared_bytes, unsigned int flags) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  const Kernel* kernel = call.process->kernels.Find(reinterpret_cast<uint64_t>(function));
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const OccupancyMemo::Key key{kernel->handle, call.process->current_device(), block_size, shared_bytes, flags, {}};
  if (const auto known = call.process->occupancy.Find(key)) {
    *blocks = *known;
    return CUDA_SUCCESS;
  }
  if (shm::HandleKindOf(kernel->handle) == shm::HandleKind::kKernel) {
    if (const CUresult result = entry::cuKernelGetFunction(&function, reinterpret_cast<CUkernel>(function));
        result != CUDA_SUCCESS)
      return result;
  }
  const CUresult result =
      wire::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, shared_bytes, flags);
  if (result == CUDA_SUCCESS) call.process->occupancy.Keep(key, *blocks);
  return result;
}

CUresult Clusters(int* answer, CUfunction function, const CUlaunchConfig* config, bool wants_maximum) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (answer == nullptr || config == nullptr || config->numAttrs > shm::kMaxLaunchAttributes ||
      (config->numAttrs != 0 && config->attrs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  const Kernel* kernel = call.process->kernels.Find(reinterpret_cast<uint64_t>(function));
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  shm::ClusterQuery query{};
  query.config.function = kernel->handle;
  const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  const unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  for (int axis = 0; axis < 3; ++axis) {
    query.config.grid[axis] = grid[axis];
    query.config.block[axis] = block[axis];
  }
  query.config.shared_bytes = config->sharedMemBytes;
  query.config.num_attributes = static_cast<uint16_t>(config->numAttrs);
  query.config.flags = shm::kLaunchEx;
  query.want_maximum = wants_maximum ? 1 : 0;
  const size_t attribute_bytes = size_t{config->numAttrs} * shm::kLaunchAttributeBytes;
  std::string request(reinterpret_cast<const char*>(&query), sizeof(query));
  if (attribute_bytes != 0) request.append(reinterpret_cast<const char*>(config->attrs), attribute_bytes);
  const OccupancyMemo::Key key{kernel->handle, call.process->current_device(), 0, 0, 0, request};
  if (const auto known = call.process->occupancy.Find(key)) {
    *answer = *known;
    return CUDA_SUCCESS;
  }
  std::byte* room = call.channel->Begin(shm::Op::kMaxActiveClusters, static_cast<uint32_t>(request.size()));
  if (room == nullptr) return call.channel->failure();
  std::memcpy(room, request.data(), request.size());
  const Reply reply = call.channel->Call();
  if (reply.result != CUDA_SUCCESS) return reply.result;
  *answer = reply.Read<int32_t>();
  call.process->occupancy.Keep(key, *answer);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
  return ActiveBlocks(numBlocks, func, blockSize, dynamicSMemSize, CU_OCCUPANCY_DEFAULT);
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func, int blockSize,
                                                              size_t dynamicSMemSize, unsigned int flags) {
  return ActiveBlocks(numBlocks, func, blockSize, dynamicSMemSize, flags);
}

// The block size with the most threads per multiprocessor; among equals the largest, as the manual's own sample does.
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize, CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags) {
  Call call;
  if (const CUresult result = BeginCallInContext(&call); result != CUDA_SUCCESS) return result;
  if (minGridSize == nullptr || blockSize == nullptr || func == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const shm::DeviceDescription& device = call.process->device(call.process->current_device());
  int most_threads = 0;
  if (const CUresult result = entry::cuFuncGetAttribute(&most_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, func);
      result != CUDA_SUCCESS)
    return result;
  if (blockSizeLimit > 0) most_threads = std::min(most_threads, blockSizeLimit);
  const int warp = std::max(1, device.attribute[CU_DEVICE_ATTRIBUTE_WARP_SIZE]);
  const int most_resident = device.attribute[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR];
  int best_threads = 0, best_size = 0, best_blocks = 0;
  for (int aligned = (most_threads + warp - 1) / warp * warp; aligned > 0; aligned -= warp) {
    const int size = std::min(aligned, most_threads);  // the first may be a limit that is no multiple of a warp
    const size_t shared = blockSizeToDynamicSMemSize != nullptr ? blockSizeToDynamicSMemSize(size) : dynamicSMemSize;
    int blocks = 0;
    if (const CUresult result = ActiveBlocks(&blocks, func, size, shared, flags); result != CUDA_SUCCESS) return result;
    if (blocks * size > best_threads) {
      best_threads = blocks * size;
      best_size = size;
      best_blocks = blocks;
    }
    if (best_threads == most_resident) break;
  }
  *blockSize = best_size;
  *minGridSize = best_blocks * device.attribute[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
                                          int blockSizeLimit) {
  return entry::cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                                          dynamicSMemSize, blockSizeLimit, CU_OCCUPANCY_DEFAULT);
}

CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func, const CUlaunchConfig* config) {
  return Clusters(numClusters, func, config, false);
}
CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func, const CUlaunchConfig* config) {
  return Clusters(clusterSize, func, config, true);
}

}  // namespace tally::client_shim::entry
