// Copies and memsets: from what the program says to what is moved.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "sim-driver/api/operation.h"

namespace tally::sim_driver {

// Which ends of a linear copy the call's name says are device memory.
enum class CopyEnd : uint8_t { kHost, kDevice, kEither };

// Checks and completes. Fails with INVALID_VALUE for device ends that are not device memory.
CopyOperation LinearCopy(uint64_t destination, CopyEnd destination_end, uint64_t source, CopyEnd source_end,
                         uint64_t num_bytes);
CopyOperation BoxCopy(const CUDA_MEMCPY3D& copy);
CUDA_MEMCPY3D Box(const CUDA_MEMCPY2D& copy);
CUDA_MEMCPY3D Box(const CUDA_MEMCPY3D_PEER& copy);
MemsetOperation CheckedMemset(const CUDA_MEMSET_NODE_PARAMS& memset);

// Runs it. The address that is not device memory (any more), if there is one.
std::optional<uint64_t> RunCopy(const CopyOperation& copy);
std::optional<uint64_t> RunMemset(const CUDA_MEMSET_NODE_PARAMS& memset);

// How a copy on a stream behaves towards the host. Submits (or captures) it and waits when the call must.
enum class CopyCall : uint8_t { kBlocking, kAsync };
void IssueCopy(CUstream stream, CopyOperation copy, CopyCall call);
void IssueMemset(CUstream stream, const CUDA_MEMSET_NODE_PARAMS& memset, CopyCall call);

}  // namespace tally::sim_driver
