// How many blocks of a kernel fit on the device, from its registers, threads and shared memory.
#pragma once

#include <cstdint>

#include "sim-driver/api/module.h"
#include "sim-driver/engine/machine.h"

namespace tally::sim_driver {

// CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: what .maxntid and registers allow.
uint32_t MaxThreadsPerBlock(const Kernel& kernel);

// Blocks that one multiprocessor holds at once; 0 when not even one fits.
uint32_t MaxBlocksPerMultiprocessor(const Kernel& kernel, uint64_t threads_per_block, uint64_t dynamic_shared_bytes);

// Clusters that the device holds at once.
uint32_t MaxActiveClusters(const Kernel& kernel, const Dim3& block, uint64_t dynamic_shared_bytes,
                           uint64_t blocks_per_cluster);

// Largest dynamic shared memory per block so that `num_blocks` fit on a multiprocessor; 0 when they never do.
uint64_t AvailableDynamicShared(const Kernel& kernel, uint32_t num_blocks, uint64_t threads_per_block);

}  // namespace tally::sim_driver
