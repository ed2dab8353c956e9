// Driver functions for programs that are linked with the runtime only: looked up by name through the runtime, so no
// program here links libcuda. The version says which ABI of the function is wanted.
#pragma once

#include <cuda.h>

#include "tests/programs/check.h"

namespace check {

template <class Function>
Function* DriverEntry(const char* name, unsigned int version) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || entry == nullptr) Fail("driver has no %s (query result %d)", name, found);
  return reinterpret_cast<Function*>(entry);
}

inline void CheckDriver(CUresult result, const char* call, int line) {
  if (result == CUDA_SUCCESS) return;
  if (const Unfinished run = UnfinishedRun(); run.results != nullptr) run.results->PrintDifferences(*run.expected);
  Fail("line %d: %s: driver error %d", line, call, static_cast<int>(result));
}

}  // namespace check

// The driver function `name` with the ABI that cuda.h of CUDA 12.0 gives it (the header's macros pick the prototype).
#define DRIVER_ENTRY(name) ::check::DriverEntry<decltype(name)>(#name, 12000)
// The same for a function whose prototype or version differs from that.
#define DRIVER_ENTRY_OF(prototype, name, version) ::check::DriverEntry<decltype(prototype)>(name, version)
#define CHECK_DRIVER(call) ::check::CheckDriver((call), #call, __LINE__)
