// Which of the executor's devices the program sees, and in which order: those that its grant allows, and of them what
// CUDA_VISIBLE_DEVICES says.
#pragma once

#include <cuda.h>

#include <expected>
#include <span>
#include <vector>

#include "proto/shm/records_context_abi.h"

namespace tally::client_shim {

// The executor's ordinals. `filter` is the variable's value, null if not set. Entries are numbers of what would be seen
// without it, or (prefixes of) UUIDs as "GPU-...". As with the native driver the list ends at the first entry that
// names no device; a device named twice is an error, CUDA_ERROR_INVALID_DEVICE (as driver 580 answers).
std::expected<std::vector<int>, CUresult> VisibleDevices(const char* filter,
                                                         std::span<const shm::DeviceDescription> devices);

}  // namespace tally::client_shim
