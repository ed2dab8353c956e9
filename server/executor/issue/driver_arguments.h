// The parameters of a launch as the driver takes them: pointers, made just before the call.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <vector>

#include "proto/device/gate_abi.h"
#include "server/executor/issue/pending_launch.h"

namespace tally::server {

// Valid as long as the launch stays where it is. A kernel with a gate of its own (Kernel::gate) is told that it is not
// used.
class DriverArguments {
 public:
  explicit DriverArguments(PendingLaunch& launch);
  DriverArguments(const DriverArguments&) = delete;
  DriverArguments& operator=(const DriverArguments&) = delete;

  // One of the two is null, as cuLaunchKernel wants it.
  void** parameters() { return has_own_buffer_ ? nullptr : pointers_; }
  void** extra() { return has_own_buffer_ ? extra_.data() : nullptr; }

 private:
  // Kernels with more parameters cost an allocation.
  static constexpr size_t kInPlace = 128;

  void TakeBuffer(PendingLaunch& launch);

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

}  // namespace tally::server
