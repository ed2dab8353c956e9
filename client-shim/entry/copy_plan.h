// Copies, whatever their shape: which side is pageable, and how its bytes travel.
//
//   device, pinned, managed   by address: the executor uses the same one
//   pageable source           in the record itself up to 64 KiB, else through the channel's arena, chunk by chunk
//   pageable destination      through the arena, chunk by chunk, and the call waits, as it does natively
//
// The blocking forms wait, those from pageable memory too unless nobody could tell (MayReturnEarly).
//
// While the stream captures, pageable bytes go through a pinned buffer of their own and a host function that fills or
// empties it whenever the graph runs: a graph reads and writes the program's memory at each launch, not at capture.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "client-shim/state/process.h"
#include "proto/shm/records_memory_abi.h"

namespace tally::client_shim {

// How the caller named a side: cuMemcpy finds out by the address, the HtoD forms say.
enum class SideKind : uint8_t { kUnified, kDevice, kHost };

struct LinearSide {
  SideKind kind;
  uint64_t address;
};

// `waits`: the blocking form of the call, which returns when a native driver's would.
CUresult CopyLinear(LinearSide destination, LinearSide source, size_t size_bytes, CUstream stream, bool waits);

// Two or three dimensions, arrays too. `copy` is CUDA's own struct (2-D forms have depth 1).
CUresult CopyBox3D(const CUDA_MEMCPY3D& copy, CUstream stream, bool waits);

// For graph nodes: the copy as a record, without bytes. CUDA_ERROR_NOT_SUPPORTED when a side is pageable.
CUresult DescribeBox(const Process& process, const CUDA_MEMCPY3D& copy, shm::CopyBox* box);

CUDA_MEMCPY3D BoxOf2D(const CUDA_MEMCPY2D& copy);

// Whether work on `stream` is being captured now. Costs one load while no capture is open.
CUresult IsStreamCapturing(const Call& call, uint64_t stream, bool* is_capturing);

}  // namespace tally::client_shim
