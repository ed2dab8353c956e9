// Holds the GPU for this process's context while nothing of it runs, so that what comes next need not wait for a
// switch.
//
// The GPU turns to another context once nothing of this one *waits* on the GPU; what runs does not count
// (docs/driver-waits.md#late). So a stream gets a queue of kernels of one thread, of which one runs and the others
// wait:
//
//      service    | K1 |      | K2 |            | K3 |
//      holder     |h|h|h|h|h|h|h|h|h|h|h|h|h|h|h|h|h|   Release: the rest ends at once
//
// Each of them lasts for a few microseconds only, because it takes room on a multiprocessor: a kernel of the service
// that wants all of them would else wait for the end of the queue. Nobody holds longer than the queue is renewed, so a
// thread that is kept from running, or dies, gives the GPU back.
//
// For one thread at a time, on which the device's context is current.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "server/executor/driver/driver_table.h"

namespace tally::server {

class GpuHolder {
 public:
  struct Shape {
    uint32_t num_queued = 32;
    uint64_t kernel_ns = 10'000;
  };
  GpuHolder(const DriverTable& driver, Shape shape) : driver_(driver), shape_(shape) {}
  ~GpuHolder();
  GpuHolder(const GpuHolder&) = delete;
  GpuHolder& operator=(const GpuHolder&) = delete;

  // False: it cannot hold. Once, before the others; waits for what runs in the context.
  bool Open();
  // Holds from now on, for as long as this is called again before the queue is empty.
  void Keep();
  // What is queued ends at once. Nothing if nothing is held.
  void Release();
  bool is_holding() const { return is_holding_; }

 private:
  const DriverTable& driver_;
  const Shape shape_;
  bool can_hold_ = false;
  bool is_holding_ = false;
  uint32_t generation_ = 0;  // of what is queued: it ends when `released` has come to that
  uint32_t num_launched_ = 0;
  struct Words {
    uint32_t released;
    uint32_t pad[31];
    uint32_t num_ended;  // written by the GPU
  };
  Words* words_ = nullptr;  // page-locked
  CUmodule module_ = nullptr;
  CUfunction hold_ = nullptr;
  CUstream stream_ = nullptr;
};

}  // namespace tally::server
