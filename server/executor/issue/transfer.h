// Transfer: a copy within the device's memory, or a fill of it, with all that the driver will want: what a window holds
// besides kernels.
//
//      to    |#######..........|#######...|     rows of row_bytes, at distances of to_pitch
//      from  |#######....|#######...|           of a copy: as many
//
// Its numbers were checked by whoever made it: rows do not wrap around. What they touch is exact.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

namespace tally::server {

struct LaunchAccesses;
class LaunchMemory;
class MemoryAnswers;

struct Transfer {
  CUdeviceptr to = 0;
  CUdeviceptr from = 0;  // of a copy
  uint64_t row_bytes = 0;
  uint64_t rows = 1;
  uint64_t to_pitch = 0;  // of several rows
  uint64_t from_pitch = 0;
  uint32_t value = 0;          // of a fill
  uint32_t element_bytes = 0;  // of a fill: 1, 2 or 4; 0: a copy
  bool operator==(const Transfer&) const = default;

  bool is_fill() const { return element_bytes != 0; }
};

// Of nodes and calls. Nothing: it is empty, of arrays or the host's memory by its own words, or of several slices.
std::optional<Transfer> TransferOf(const CUDA_MEMCPY3D& copy);
std::optional<Transfer> TransferOf(const CUDA_MEMSET_NODE_PARAMS& fill);
// The other way.
CUDA_MEMCPY3D CopyOf(const Transfer& copy);
CUDA_MEMSET_NODE_PARAMS FillOf(const Transfer& fill);

// What cannot be changed in a graph that was built. Of one row addresses and value can ("both the instantiation-time
// memory operands and the memory operands in copyParams must be 1-dimensional", cuGraphExecMemcpyNodeSetParams; of
// fills likewise). Of several rows nothing can, so all numbers are in it.
uint64_t GeometryOf(const Transfer& transfer);

// Not null: why nothing may run beside it, as LaunchAccesses::barrier; `*accesses` means nothing then. What that has of
// memory it keeps. `answers`, if anybody wants to know: what memory was asked.
const char* FindAccesses(const Transfer& transfer, const LaunchMemory& memory, LaunchAccesses* accesses,
                         MemoryAnswers* answers = nullptr);

}  // namespace tally::server
