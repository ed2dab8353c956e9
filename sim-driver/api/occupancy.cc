#include "sim-driver/api/occupancy.h"

#include <algorithm>

namespace tally::sim_driver {
namespace {

// Registers are given out per warp in units of 256, by four partitions that each own a quarter of them.
constexpr uint32_t kRegisterUnit = 256;
constexpr uint32_t kNumPartitions = 4;
constexpr uint64_t kSharedUnit = 128;

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

uint64_t WarpsByRegisters(const Kernel& kernel) {
  const uint64_t per_warp =
      RoundUp(uint64_t{std::max(kernel.num_registers, 1U)} * MachineLimits::kWarpSize, kRegisterUnit);
  return MachineLimits::kRegistersPerSm / kNumPartitions / per_warp * kNumPartitions;
}

}  // namespace

uint32_t MaxThreadsPerBlock(const Kernel& kernel) {
  const uint64_t by_registers = WarpsByRegisters(kernel) * MachineLimits::kWarpSize;
  return static_cast<uint32_t>(
      std::min({uint64_t{kernel.max_threads_per_block}, by_registers, uint64_t{MachineLimits::kMaxThreadsPerBlock}}));
}

uint32_t MaxBlocksPerMultiprocessor(const Kernel& kernel, uint64_t threads_per_block, uint64_t dynamic_shared_bytes) {
  if (threads_per_block == 0 || threads_per_block > MaxThreadsPerBlock(kernel)) return 0;
  const uint64_t shared = kernel.static_shared_bytes + dynamic_shared_bytes;
  if (dynamic_shared_bytes > MachineLimits::kSharedBytesPerSm || shared > MachineLimits::kSharedBytesPerBlockOptin) {
    return 0;
  }
  const uint64_t warps = RoundUp(threads_per_block, MachineLimits::kWarpSize) / MachineLimits::kWarpSize;
  const uint64_t by_threads = MachineLimits::kMaxThreadsPerSm / MachineLimits::kWarpSize / warps;
  const uint64_t by_registers = WarpsByRegisters(kernel) / warps;
  const uint64_t by_shared =
      MachineLimits::kSharedBytesPerSm / RoundUp(shared + MachineLimits::kReservedSharedBytesPerBlock, kSharedUnit);
  return static_cast<uint32_t>(
      std::min({uint64_t{MachineLimits::kMaxBlocksPerSm}, by_threads, by_registers, by_shared}));
}

uint32_t MaxActiveClusters(const Kernel& kernel, const Dim3& block, uint64_t dynamic_shared_bytes,
                           uint64_t blocks_per_cluster) {
  if (blocks_per_cluster == 0 || blocks_per_cluster > MachineLimits::kMaxBlocksPerCluster) return 0;
  const uint64_t blocks =
      uint64_t{MaxBlocksPerMultiprocessor(kernel, block.Count(), dynamic_shared_bytes)} * MachineLimits::kNumSms;
  return static_cast<uint32_t>(blocks / blocks_per_cluster);
}

uint64_t AvailableDynamicShared(const Kernel& kernel, uint32_t num_blocks, uint64_t threads_per_block) {
  if (num_blocks == 0 || MaxBlocksPerMultiprocessor(kernel, threads_per_block, 0) < num_blocks) return 0;
  const uint64_t per_block = MachineLimits::kSharedBytesPerSm / num_blocks / kSharedUnit * kSharedUnit;
  const uint64_t taken = MachineLimits::kReservedSharedBytesPerBlock + kernel.static_shared_bytes;
  if (per_block < taken) return 0;
  return std::min<uint64_t>(per_block - taken, MachineLimits::kSharedBytesPerBlockOptin - kernel.static_shared_bytes);
}

}  // namespace tally::sim_driver
