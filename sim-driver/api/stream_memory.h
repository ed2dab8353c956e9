// Stream memory operations: a stream writes a word, or waits until a word compares.
#pragma once

#include <cuda.h>

#include <functional>
#include <vector>

namespace tally::sim_driver {

// Fails with INVALID_VALUE for misaligned or foreign addresses and unknown flags, NOT_SUPPORTED for remote-write
// flushes.
void CheckStreamMemoryOperation(const CUstreamBatchMemOpParams& operation);

// Performs the operations in order; returns false as long as one of the waits does not hold. Safe if memory is freed
// meanwhile: such an operation counts as done.
std::function<bool()> MakeStreamMemoryPoll(std::vector<CUstreamBatchMemOpParams> operations);

}  // namespace tally::sim_driver
