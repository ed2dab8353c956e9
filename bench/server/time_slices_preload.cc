// For LD_PRELOAD, with observed_ioctl.cc: gives a native program's contexts the time slice TALLY_TIME_SLICE_US. What
// the driver can do without a daemon, for comparison only: who preloads it must know which programs share the GPU.
#include <cstdlib>

#include "server/executor/process/gpu_channel_groups.h"

namespace {

__attribute__((constructor)) void WantSliceOfEnvironment() {
  const char* wanted = std::getenv("TALLY_TIME_SLICE_US");
  if (wanted == nullptr) return;
  tally::server::GpuChannelGroups::OfThisProcess().WantTimeSlice(
      std::chrono::microseconds(std::strtoll(wanted, nullptr, 10)));
}

}  // namespace
