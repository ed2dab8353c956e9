// The driver's own linker, for one input: what is not yet something that a GPU runs becomes a cubin.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {

// For the device of the current context. `name` is what the driver calls the input in its messages; text ends with a
// zero. kUnavailable: "the driver did not link it", its error, and the first line of what it says.
Result<std::vector<std::byte>> LinkWithDriver(const DriverTable& driver, CUjitInputType type,
                                              std::span<const std::byte> input, const std::string& name);

}  // namespace tally::server
