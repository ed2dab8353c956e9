// CUDA_VISIBLE_DEVICES: which of the executor's devices the program sees, and in which order.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "proto/shm/records_abi.h"

namespace tally::client_shim {

// `filter` is the variable's value, null if not set. Entries are ordinals or (prefixes of) UUIDs as "GPU-...". As with
// the native driver the list ends at the first entry that names no device, or one already named (then: none at all).
std::vector<int> VisibleDevices(const char* filter, std::span<const shm::DeviceDescription> devices);

}  // namespace tally::client_shim
