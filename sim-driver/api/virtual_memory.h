// Virtual memory management (cuMemCreate, cuMemMap): physical memory that can be mapped at reserved addresses.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>

#include "base/unique_fd.h"

namespace tally::sim_driver {

// Lives until the program released it and its last mapping is gone.
struct PhysicalMemory {
  ~PhysicalMemory();
  CUmemGenericAllocationHandle handle = 0;
  uint64_t num_bytes = 0;
  int device = 0;
  CUmemAllocationProp properties{};
  UniqueFd fd;               // sealed; behind the memory's bytes one page that says what it is, for whoever imports it
  bool is_imported = false;  // its maker accounts for it
  uint32_t num_references = 1;  // cuMemCreate and each cuMemRetainAllocationHandle
};

// Fails with INVALID_VALUE or NOT_SUPPORTED for memory that this device does not have.
void CheckAllocationProperties(const CUmemAllocationProp& properties);
CUmemGenericAllocationHandle CreatePhysical(uint64_t num_bytes, const CUmemAllocationProp& properties);
void ReleasePhysical(CUmemGenericAllocationHandle handle);
// A new descriptor for other processes. INVALID_VALUE unless the memory was made for that.
int ExportPhysical(CUmemGenericAllocationHandle handle);
// The memory behind a descriptor of ExportPhysical(), of whichever process; the descriptor stays the caller's.
// INVALID_VALUE for any other file, INVALID_DEVICE when this process has no such device.
CUmemGenericAllocationHandle ImportPhysical(int fd);
CUmemAllocationProp PropertiesOf(CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle RetainPhysicalAt(uint64_t address);

// At `hint` if it is free, lies in the window and is as aligned as is wanted; else, or when it is 0, elsewhere.
uint64_t ReserveAddresses(uint64_t num_bytes, uint64_t alignment, uint64_t hint);
void FreeAddresses(uint64_t base, uint64_t num_bytes);
void MapAt(uint64_t address, uint64_t num_bytes, uint64_t offset, CUmemGenericAllocationHandle handle);
void UnmapAt(uint64_t address, uint64_t num_bytes);
// For kernels of `device`; other devices keep what they have.
void SetAccess(uint64_t address, uint64_t num_bytes, int device, CUmemAccess_flags access);
CUmemAccess_flags AccessAt(uint64_t address, int device);
// CUmemAllocationHandleType bits of the memory that is mapped there.
uint64_t HandleTypesAt(uint64_t base);

}  // namespace tally::sim_driver
