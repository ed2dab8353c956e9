// Pageable memory in graphs: see copy_plan.h.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "client-shim/state/process.h"

namespace tally::client_shim {

// A pinned buffer for the bytes of one captured copy. It belongs to the process for good: graphs made from a capture
// are cloned and instantiated at will, and any of them may use it.
CUresult AllocateStaging(const Call& call, size_t size_bytes, void** staging);

// Appends to the capturing stream a host function that copies between the two whenever the graph runs there.
CUresult CaptureHostCopy(const Call& call, uint64_t stream, void* destination, const void* source, size_t size_bytes);

}  // namespace tally::client_shim
