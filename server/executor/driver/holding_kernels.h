// Kernels of one thread by which a context gets the GPU before its work comes, or keeps it while nothing of it runs.
//
// The GPU turns to another context once nothing of this one *waits* on the GPU; what runs does not count
// (docs/driver-waits.md#late). So a stream of its own gets a queue of them, of which one runs and the others wait, and
// whatever else comes runs at once beside it:
//
//      service    | K1 |      | K2 |            | K3 |
//      holding    |h|h|h|h|h|h|h|h|h|h|h|h|h|h|h|h|h|   Release: the rest ends at once
//
// Each is a graph of one kernel: *launches* from another stream leave the GPU in a state in which every kernel of the
// service's graphs takes 0.2 us longer, until it is switched away from (docs/driver-waits.md#state).
//
// One takes room on a multiprocessor, so a kernel of the service that wants all of them waits for the end of one of
// these. Nothing is held for longer than the queue is filled up, so a thread that is kept from running, or dies, gives
// the GPU back.
//
// For one thread at a time, but for Release. The device's primary context must be current.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "server/executor/driver/driver_table.h"

namespace tally::server {

class HoldingKernels {
 public:
  struct Queue {
    uint32_t num_kernels;
    std::chrono::nanoseconds each;  // as the GPU's clock goes
  };

  // What a kernel is to do, as the GPU reads it.
  struct Order {
    uint64_t each_ns;
    uint32_t ticket, unused;
  };
  static constexpr uint32_t kNumOrders = 128;  // in the kernel's text, too

  explicit HoldingKernels(const DriverTable& driver) : driver_(driver) {}
  // Waits for what is left of them.
  ~HoldingKernels();
  HoldingKernels(const HoldingKernels&) = delete;
  HoldingKernels& operator=(const HoldingKernels&) = delete;

  // Once, before the others. Loads code, for which the driver may wait for the whole context.
  CUresult Load();
  // Fills the queue up; after a Release, anew. Nothing after an error: the context is lost.
  CUresult Keep(const Queue& queue);
  // From now on for `duration`, whatever was held before.
  CUresult Hold(std::chrono::nanoseconds duration);
  // What is queued ends within microseconds. Any thread; one store.
  void Release() {
    if (words_ != nullptr) words_->released.store(ticket_.load(std::memory_order_relaxed), std::memory_order_release);
  }
  // That have not ended yet.
  uint32_t num_left() const {
    return words_ == nullptr ? 0 : num_launched_ - words_->num_ended.load(std::memory_order_relaxed);
  }
  // Whether Keep was called since the last Release, and the driver took what it launched.
  bool is_holding() const {
    return failed_ == CUDA_SUCCESS && words_ != nullptr &&
           words_->released.load(std::memory_order_relaxed) != ticket_.load(std::memory_order_relaxed);
  }

 private:
  // Page-locked: written by the host, and by the GPU. A graph's parameters are fixed, so kernel number n (from 0) finds
  // its order at n % kNumOrders.
  struct Words {
    std::atomic<uint32_t> released{0};  // kernels up to this ticket may go
    alignas(128) std::atomic<uint32_t> num_ended{0};
    alignas(128) Order orders[kNumOrders];
  };

  CUresult MakeGraph();

  const DriverTable& driver_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  CUgraphExec graph_ = nullptr;
  CUstream stream_ = nullptr;
  Words* words_ = nullptr;
  CUdeviceptr words_address_ = 0;
  std::atomic<uint32_t> ticket_{0};  // of what is queued
  uint32_t num_launched_ = 0;
  CUresult failed_ = CUDA_SUCCESS;
};

}  // namespace tally::server
