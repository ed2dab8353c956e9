// From the arguments of a launch to a checked KernelOperation.
#pragma once

#include <cuda.h>

#include <span>

#include "sim-driver/api/operation.h"

namespace tally::sim_driver {

struct LaunchArguments {
  CUfunction function = nullptr;  // or a CUkernel
  Dim3 grid = {}, block = {};
  uint32_t dynamic_shared_bytes = 0;
  void** parameters = nullptr;
  void** extra = nullptr;
  std::span<const CUlaunchAttribute> attributes = {};
  bool is_cooperative = false;
};

// Fails as a native driver would: INVALID_VALUE for impossible shapes and missing parameters, INVALID_CLUSTER_SIZE,
// LAUNCH_OUT_OF_RESOURCES for more threads than the kernel allows, COOPERATIVE_LAUNCH_TOO_LARGE, INVALID_HANDLE for a
// function of another context. NOT_SUPPORTED (with a line on stderr, once per kernel) for code that the engine refuses.
KernelOperation CheckedLaunch(const LaunchArguments& arguments, const ContextPtr& context);

// Packs new parameters into an operation that is otherwise complete.
void PackParameters(KernelOperation& operation, void** parameters, void** extra);

// Programmatic and completion events among the attributes are recorded after the launch: see IssueLaunch().
void IssueLaunch(const StreamUse& use, const LaunchArguments& arguments);

}  // namespace tally::sim_driver
