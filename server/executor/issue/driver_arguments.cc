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

}  // namespace tally::server
