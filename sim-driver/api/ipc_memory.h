// IPC handles of device memory (cuIpcGetMemHandle): allocations of one process that another maps.
//
// A handle names a process, its descriptor of the window's file and a record in the file's tail (device_window.h). The
// other process opens the file through /proc, which the system allows for processes of the same user in the same pid
// namespace, and reads the record there: a handle whose memory has been freed meets another token, or none. As
// natively, whoever frees memory that is open elsewhere gets undefined contents there, zeros here.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "sim-driver/api/context.h"

namespace tally::sim_driver {

bool IsExportable(const MemoryRegion& region);
// `address` is the start of an allocation of cuMemAlloc, or inside one: the handle is that of the whole. Fails with
// INVALID_VALUE for any other memory, with OUT_OF_MEMORY when too many are exported at once (kMaxExports).
CUipcMemHandle ExportMemory(uint64_t address);
// An exported allocation ends.
void ForgetExport(uint64_t base);

// Maps what `handle` names. Opening again in the same context gives the same address and is counted. Fails with
// INVALID_HANDLE when it names nothing that is alive, INVALID_CONTEXT in the process that made it, INVALID_DEVICE when
// this process has no such device.
uint64_t OpenMemory(Context& context, const CUipcMemHandle& handle, bool enables_peer);
// Fails with INVALID_VALUE for what OpenMemory() did not return here. The context's work is waited for.
void CloseMemory(Context& context, uint64_t address);
// All that a destroyed context has open.
void CloseMemoryOf(const Context& context);

inline constexpr uint32_t kMaxExports = 4096;

}  // namespace tally::sim_driver
