// Whether gates in machine code (cubin-transforms) work on the GPU and driver at hand. They rest on formats that nobody
// documents: a driver might ignore what was added to a cubin, and a kernel that cannot be stopped, or that loses blocks
// when it is resumed, must be found out before a program's kernels are changed.
#pragma once

#include <cuda.h>

#include "base/status.h"
#include "server/executor/driver/driver_table.h"

namespace tally::server {

// Compiles a small kernel with the driver, gives it a gate and runs it: with the gate off; stopped before it begins (no
// block may run); resumed (each once); stopped half-way, and resumed. A few milliseconds; the device's context must be
// current. kUnavailable: the driver has no machine code to change, or does not load what was changed;
// kFailedPrecondition: gates do not do what they should, and why.
Status TestGates(const DriverTable& driver);

}  // namespace tally::server
