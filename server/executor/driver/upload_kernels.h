// Copies from page-locked memory to a GPU, made by a kernel in place of a copy engine.
//
// Why: where the GPU takes turns between contexts, work that goes from a copy engine to the multiprocessors and back
// loses the GPU at each step, and pays a whole switch to get it again. Small copies are the driver's to put where it
// likes, so a request with several of them paid twice (docs/driver-waits.md, "Requests of several copies").
//
// Thread-safe.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "server/executor/driver/driver_table.h"

namespace tally::server {

class UploadKernels {
 public:
  // Beyond this a copy engine is quicker than what a switch costs.
  static constexpr uint64_t kMostBytes = uint64_t{256} << 10;

  explicit UploadKernels(const DriverTable& driver) : driver_(driver) {}
  UploadKernels(const UploadKernels&) = delete;
  UploadKernels& operator=(const UploadKernels&) = delete;

  // Puts it on `stream`, whose context is current and is that of `device`, and stays there. `from`: as the GPU
  // addresses it. False: code cannot be loaded there; nothing was put on the stream.
  bool Copy(int device, CUdeviceptr to, CUdeviceptr from, uint64_t size_bytes, CUstream stream, CUresult* result);

 private:
  struct Code {
    CUmodule module = nullptr;  // of the device's primary context: it goes with that
    CUfunction function = nullptr;
  };
  CUfunction FunctionOf(int device);

  const DriverTable& driver_;
  std::mutex mutex_;
  std::map<int, Code> code_;  // guarded by mutex_; by device; without a function: it does not load there
};

}  // namespace tally::server
