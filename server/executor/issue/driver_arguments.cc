#include "server/executor/issue/driver_arguments.h"

#include <algorithm>

#include "server/executor/driver/launch_config.h"
#include "server/executor/issue/kernel_code.h"

namespace tally::server {

DriverArguments::DriverArguments(PendingLaunch& launch) : has_own_buffer_(launch.has_own_buffer()) {
  if (has_own_buffer_) {
    TakeBuffer(launch);
    return;
  }
  const Kernel& kernel = *launch.kernel;
  const size_t num_parameters = kernel.layout.size();
  if (num_parameters >= kInPlace) {
    more_.resize(num_parameters + 1);
    pointers_ = more_.data();
  }
  std::byte* const base = launch.parameters.data();
  for (size_t i = 0; i < num_parameters; ++i) pointers_[i] = base + kernel.layout[i].offset_bytes;
  pointers_[num_parameters] = kernel.gate ? &no_gate_ : nullptr;
}

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

CUlaunchConfig ConfigOf(PendingLaunch& launch, CUstream stream) {
  return LaunchConfig(launch.shape.grid, launch.shape.block, launch.shape.shared_bytes, stream, launch.attributes);
}

}  // namespace tally::server
