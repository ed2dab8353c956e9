// Allocations with their accounting and ownership, and what a pointer is.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "sim-driver/api/context.h"
#include "sim-driver/api/memory_map.h"

namespace tally::sim_driver {

// Device or managed memory of `context`, counted against the device. Fails with OUT_OF_MEMORY.
uint64_t AcquireMemory(Context& context, MemoryRegion shape, uint64_t alignment);
// Undoes AcquireMemory() for the range that starts at `base`. False when there is none.
bool ReleaseMemory(uint64_t base);
// Everything that a destroyed context owned.
void FreeMemoryOf(const Context& context);

// Memory of a graph's allocation node: given back when the last copy of the returned owner is gone.
std::shared_ptr<void> AcquireGraphMemory(Context& context, uint64_t num_bytes, CUdeviceptr& address);

// What allocation nodes hold on that device.
uint64_t GraphMemoryBytes(int ordinal);
// The most there ever was, since the last reset.
std::atomic<uint64_t>& GraphMemoryHighBytes(int ordinal);

// Pinned host memory, at the same address for host and device.
void* AllocateHost(Context& context, uint64_t num_bytes, unsigned flags);
void FreeHost(Context& context, void* pointer);
void RegisterHost(Context& context, void* pointer, uint64_t num_bytes, unsigned flags);
void UnregisterHost(Context& context, void* pointer);

// cuMemFree: waits for the context's work first, as native drivers do. Fails with INVALID_VALUE.
void FreeDevice(Context& context, uint64_t base);

// One attribute of cuPointerGetAttribute into `out`. NOT_SUPPORTED for those that no software device has.
CUresult PointerAttribute(void* out, CUpointer_attribute attribute, uint64_t pointer);

// The bytes that an allocation counts for.
uint64_t AccountedBytes(uint64_t num_bytes);

}  // namespace tally::sim_driver
