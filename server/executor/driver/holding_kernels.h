// Kernels of one thread by which a context gets the GPU before its work comes, and keeps it until then: a queue of
// them, on a stream of its own. While the queue is not empty the GPU turns to no other context, and whatever else comes
// runs at once beside it (docs/driver-waits.md).
//
// Not thread-safe, but for Release. The device's primary context must be current.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "server/executor/driver/driver_table.h"

namespace tally::server {

class HoldingKernels {
 public:
  explicit HoldingKernels(const DriverTable& driver) : driver_(driver) {}
  // Waits for what is left of them.
  ~HoldingKernels();
  HoldingKernels(const HoldingKernels&) = delete;
  HoldingKernels& operator=(const HoldingKernels&) = delete;

  // Once, before the others. Loads code, for which the driver may wait for the whole context.
  CUresult Load();
  // From now on for `duration`, as the GPU's clock goes, or until Release.
  CUresult Hold(std::chrono::nanoseconds duration);
  // Those that are there end within microseconds. Any thread; one store.
  void Release() {
    if (word_ != nullptr) word_->store(ticket_.load(std::memory_order_relaxed), std::memory_order_release);
  }

 private:
  const DriverTable& driver_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  CUstream stream_ = nullptr;
  std::atomic<uint32_t>* word_ = nullptr;  // in page-locked memory: kernels up to this ticket may go
  CUdeviceptr word_address_ = 0;
  std::atomic<uint32_t> ticket_{0};  // of the last Hold
};

}  // namespace tally::server
