// Memory of other programs, where it ends in calls of other chapters.
#pragma once

#include <cuda.h>

#include "client-shim/state/process.h"

namespace tally::client_shim::entry {

// Memory that was opened (MemoryKind::kOpened) is closed once more; after the last time it is gone from this process.
CUresult CloseMemory(const Call& call, CUdeviceptr address);

}  // namespace tally::client_shim::entry
