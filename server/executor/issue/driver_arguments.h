// The parameters of a launch as the driver takes them: pointers, made just before the call.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <vector>

#include "proto/device/gate_abi.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/issue/pending_launch.h"

namespace tally::server {

// Valid as long as the launch stays where it is. A kernel with a gate of its own (Kernel::gate) is told that it is not
// used.
class DriverArguments {
 public:
  explicit DriverArguments(PendingLaunch& launch) : has_own_buffer_(launch.has_own_buffer()) {
    if (has_own_buffer_) [[unlikely]] {
      TakeBuffer(launch);
      return;
    }
    const Kernel& kernel = *launch.kernel;
    const size_t num_parameters = kernel.layout.size();
    if (num_parameters >= kInPlace) [[unlikely]]
      pointers_ = MoreRoom(num_parameters + 1);
    std::byte* const base = launch.parameters.data();
    for (size_t i = 0; i < num_parameters; ++i) pointers_[i] = base + kernel.layout[i].offset_bytes;
    pointers_[num_parameters] = kernel.gate ? &no_gate_ : nullptr;
  }
  DriverArguments(const DriverArguments&) = delete;
  DriverArguments& operator=(const DriverArguments&) = delete;

  // One of the two is null, as cuLaunchKernel wants it.
  void** parameters() { return has_own_buffer_ ? nullptr : pointers_; }
  void** extra() { return has_own_buffer_ ? extra_.data() : nullptr; }

 private:
  // Kernels with more parameters cost an allocation.
  static constexpr size_t kInPlace = 128;

  void TakeBuffer(PendingLaunch& launch);
  void** MoreRoom(size_t count);

  const bool has_own_buffer_;
  void* in_place_[kInPlace];
  std::vector<void*> more_;
  void** pointers_ = in_place_;  // never null
  size_t buffer_bytes_ = 0;
  std::array<void*, 5> extra_;
  device::GateParameters no_gate_{};
};

// `attributes` stay the launch's.
CUlaunchConfig ConfigOf(PendingLaunch& launch, CUstream stream);

// The launch as a node of a graph. `arguments`: of the launch, and outlive what is returned.
CUDA_KERNEL_NODE_PARAMS_v2 KernelNodeOf(const PendingLaunch& launch, DriverArguments& arguments);

}  // namespace tally::server
