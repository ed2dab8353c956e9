#include "tests/server/executor/process/scripted_driver.h"

#include <sys/ioctl.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/executor/process/gpu_channel_groups.h"

namespace tally::server {
namespace {

// NVOS54_PARAMETERS and two of the controls that it carries, as in gpu_channel_groups.cc.
struct Control {
  uint32_t client, object, command, flags;
  uint64_t parameters;
  uint32_t parameter_bytes, status;
};
constexpr unsigned long kControl = _IOWR('F', 0x2A, Control);
constexpr uint32_t kSet = 0xA06C0103, kGet = 0xA06C0104;
constexpr uint64_t kOwnSliceUs = 2000;
constexpr uint32_t kNotSupported = 0x56;

std::atomic<uint64_t> slice_us{0};
std::atomic<bool> does_refuse{false};

std::string Script() {
  const char* script = std::getenv("TALLY_SCRIPT_SLICES");
  return script != nullptr ? script : "";
}

int ScriptedIoctl(int, unsigned long, void* argument) {
  auto* control = static_cast<Control*>(argument);
  auto* value = reinterpret_cast<uint64_t*>(control->parameters);
  control->status = 0;
  if (control->command == kGet) *value = slice_us;
  if (control->command != kSet) return 0;
  if (does_refuse && *value != kOwnSliceUs) {
    control->status = kNotSupported;
  } else {
    slice_us = *value;
  }
  return 0;
}

}  // namespace

GpuChannelGroups& GpuChannelGroups::OfThisProcess() {
  static GpuChannelGroups* const groups = new GpuChannelGroups(&ScriptedIoctl);
  return *groups;
}

bool ScriptedDriver::IsScripted() { return !Script().empty(); }

void ScriptedDriver::MakeContext() {
  if (slice_us != 0 || Script() == "hide") return;
  if (Script() == "refuse") does_refuse = true;
  uint64_t own_us = kOwnSliceUs;
  Control control{1, 2, kSet, 0, reinterpret_cast<uint64_t>(&own_us), sizeof(own_us), 0};
  GpuChannelGroups::OfThisProcess().Forward(/*fd=*/7, kControl, &control);
}

void ScriptedDriver::TakeBack() {
  does_refuse = true;
  slice_us = kOwnSliceUs;
}

}  // namespace tally::server
