// The CUDA driver as a struct of function pointers: the executor links no driver, and nothing above this knows whether
// the table was filled from NVIDIA's libcuda.so.1 or from sim-driver.
//
// Filled once before any session exists, constant afterwards, so reading it needs no lock. A member is null where that
// driver lacks the function: callers of anything beyond the basics (kRequired in the .cc) check.
#pragma once

#include <cuda.h>
#include <cudaProfiler.h>

#include <string>

#include "base/status.h"
#include "server/executor/driver/driver_libraries.h"

namespace tally::server {

struct DriverTable {
#define TALLY_DRIVER_FUNCTION(symbol) decltype(&::symbol) symbol = nullptr;
#include "proto/driver/generated/driver_functions.inc"
#undef TALLY_DRIVER_FUNCTION
};

struct LoadedDriver {
  DriverTable table;
  DriverLibraries libraries;  // that another process finds the same one by
  std::string description;    // for logs and `tallyctl version`
  bool is_software = false;
  int num_devices = 0;
};

// Opens, initialises (cuInit) and counts devices. The library stays loaded until the process ends. kUnavailable: none
// is usable; the message lists what was tried and why it failed.
Result<LoadedDriver> LoadDriver(const DriverLibraries& libraries);

// 13000 for 13.0; zero if the driver does not say.
uint32_t DriverVersion(const DriverTable& driver);

// Errors after which a context is of no use to anybody: the driver returns them from every later call.
bool IsSticky(CUresult result);

// "CUDA_ERROR_INVALID_VALUE", from the driver itself; never null.
std::string CudaErrorName(const DriverTable& driver, CUresult result);

}  // namespace tally::server
