#include "server/executor/issue/driver_arguments.h"

#include <algorithm>

#include "server/executor/driver/launch_config.h"

namespace tally::server {

void DriverArguments::TakeBuffer(PendingLaunch& launch) {
  buffer_bytes_ = launch.parameter_bytes;
  if (const auto& gate = launch.kernel->gate) {
    launch.parameters.Resize(std::min<size_t>(launch.parameter_bytes, gate->hidden_offset));
    buffer_bytes_ = gate->hidden_offset + sizeof(no_gate_);
    launch.parameters.Resize(buffer_bytes_);
  }
  extra_ = {CU_LAUNCH_PARAM_BUFFER_POINTER, launch.parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &buffer_bytes_,
            CU_LAUNCH_PARAM_END};
}

void** DriverArguments::MoreRoom(size_t count) {
  more_.resize(count);
  return more_.data();
}

CUlaunchConfig ConfigOf(PendingLaunch& launch, CUstream stream) {
  return LaunchConfig(launch.shape.grid, launch.shape.block, launch.shape.shared_bytes, stream, launch.attributes);
}

CUDA_KERNEL_NODE_PARAMS_v2 KernelNodeOf(const PendingLaunch& launch, DriverArguments& arguments) {
  const auto& [grid, block, shared_bytes] = launch.shape;
  CUDA_KERNEL_NODE_PARAMS_v2 p{};
  p.func = launch.kernel->function;
  p.kern = launch.kernel->kernel;
  p.gridDimX = grid[0];
  p.gridDimY = grid[1];
  p.gridDimZ = grid[2];
  p.blockDimX = block[0];
  p.blockDimY = block[1];
  p.blockDimZ = block[2];
  p.sharedMemBytes = shared_bytes;
  p.kernelParams = arguments.parameters();
  p.extra = arguments.extra();
  return p;
}

}  // namespace tally::server
