// Turns the arguments of a launch into the record that carries it: shared by launches and kernel nodes of graphs.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "client-shim/state/process.h"
#include "proto/shm/records_launch_abi.h"

namespace tally::client_shim {

// Fills in the record of a launch, as cuLaunchKernelEx takes it, and finds at once what the native driver finds at
// once: unknown functions, empty or oversized grids and blocks, too much shared memory, missing parameters. `flags`:
// shm::LaunchFlags; the stream stays 0. No lock, no allocation.
CUresult DescribeLaunch(const Process& process, CUfunction function, const CUlaunchConfig& config, void** parameters,
                        void** extra, uint16_t flags, shm::Launch* launch, const Kernel** kernel);

// What follows the record of a launch that was found to be in order.
inline uint32_t LaunchTailBytes(const shm::Launch& launch) {
  return launch.num_attributes * shm::kLaunchAttributeBytes + launch.parameter_bytes;
}
// Writes the record, its attributes, then the parameters packed as the kernel's layout, to `out`.
void WriteLaunch(const shm::Launch& launch, const Kernel& kernel, const CUlaunchConfig& config, void** parameters,
                 void** extra, std::byte* out);

}  // namespace tally::client_shim
