// Asks the executor for something by name: shared by modules, libraries and the hidden tables.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

#include "client-shim/state/process.h"

namespace tally::client_shim {

// kGetFunction, kGetKernel or kKernelFunction; the kernel is filed in the process's table.
CUresult LookUpKernel(const Call& call, shm::Op op, uint64_t owner, const char* name, Kernel** kernel);
// kGetGlobal; the address becomes known to the address map, and usable here if the variable is managed. With
// `only_managed` others are not found.
CUresult LookUpGlobal(const Call& call, uint64_t owner, const char* name, CUdeviceptr* address, size_t* size_bytes,
                      bool only_managed = false);
// kListKernels: handles of all kernels of a module or library, each filed.
struct ListedKernel {
  uint64_t handle;
  std::string name;
};
CUresult ListKernels(const Call& call, uint64_t owner, std::vector<ListedKernel>* kernels);

}  // namespace tally::client_shim
