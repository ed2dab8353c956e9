// Turns the arguments of a launch into the record that carries it: shared by launches and kernel nodes of graphs.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client-shim/state/process.h"
#include "proto/shm/records_launch_abi.h"

namespace tally::client_shim {

// A launch that was found to be in order. Points at the caller's memory; lives as long as the call.
struct PreparedLaunch {
  shm::Launch launch;  // stream still 0
  const Kernel* kernel = nullptr;
  void** parameters = nullptr;        // kernelParams, null when `extra` is used or there are none
  const void* extra_bytes = nullptr;  // the caller's own parameter buffer
  const CUlaunchAttribute* attributes = nullptr;

  uint32_t tail_bytes() const { return launch.num_attributes * shm::kLaunchAttributeBytes + launch.parameter_bytes; }
};

struct LaunchArguments {
  CUfunction function;
  unsigned int grid[3];
  unsigned int block[3];
  unsigned int shared_bytes;
  void** parameters;
  void** extra;
  const CUlaunchAttribute* attributes = nullptr;
  unsigned int num_attributes = 0;
  uint16_t flags = 0;  // shm::LaunchFlags
};

// Finds at once what the native driver finds at once: unknown functions, empty or oversized grids and blocks, too
// much shared memory, missing parameters. No lock, no allocation.
CUresult PrepareLaunch(const Process& process, const LaunchArguments& arguments, PreparedLaunch* prepared);

// Writes the attributes, then the parameters packed as the kernel's layout, to `out` (tail_bytes() of room).
void WriteLaunchTail(const PreparedLaunch& prepared, std::byte* out);

}  // namespace tally::client_shim
