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
  UniqueFd fd;
  uint32_t num_references = 1;  // cuMemCreate and each cuMemRetainAllocationHandle
};

// Fails with INVALID_VALUE or NOT_SUPPORTED for memory that this device does not have.
void CheckAllocationProperties(const CUmemAllocationProp& properties);
CUmemGenericAllocationHandle CreatePhysical(uint64_t num_bytes, const CUmemAllocationProp& properties);
void ReleasePhysical(CUmemGenericAllocationHandle handle);
CUmemAllocationProp PropertiesOf(CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle RetainPhysicalAt(uint64_t address);

uint64_t ReserveAddresses(uint64_t num_bytes, uint64_t alignment);
void FreeAddresses(uint64_t base, uint64_t num_bytes);
void MapAt(uint64_t address, uint64_t num_bytes, uint64_t offset, CUmemGenericAllocationHandle handle);
void UnmapAt(uint64_t address, uint64_t num_bytes);
void SetAccess(uint64_t address, uint64_t num_bytes, CUmemAccess_flags access);
CUmemAccess_flags AccessAt(uint64_t address);

}  // namespace tally::sim_driver
