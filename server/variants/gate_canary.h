// Whether gates in machine code work on this GPU with this driver. What they rest on is not documented: a driver that
// took another entry of the kernel, say, would run it without its gate, and nobody would notice.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/status.h"
#include "server/gpu/driver_table.h"

namespace tally::server {

// Puts a gate into a small kernel and stops it before, in the middle of and after its blocks; each must run exactly
// when it should. The device's context must be current. Waits: milliseconds. kUnimplemented: no machine code here;
// kInternal: something ran that should not have, or the other way round.
Status TryGate(const DriverTable& driver, uint32_t arch);

}  // namespace tally::server
