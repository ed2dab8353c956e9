#include "tests/server/executor/process/scripted_driver.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
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
// NVOS64_PARAMETERS of a GPU channel group, likewise.
struct Allocation {
  uint32_t client, parent, object, object_class;
  uint64_t parameters, rights;
  uint32_t parameter_bytes, flags, status, unused;
};
struct GroupParameters {
  uint32_t error_object, ecc_error_object, address_space, engine;
};
constexpr unsigned long kAllocation = _IOWR('F', 0x2B, Allocation);
constexpr uint32_t kSet = 0xA06C0103, kGet = 0xA06C0104;
constexpr uint64_t kOwnSliceUs = 2000;
constexpr uint32_t kNotSupported = 0x56;

std::mutex mutex;
// Guarded by mutex; by group, which there is one of for each device. Other files' initialisers may come first.
std::map<uint32_t, uint64_t>& Slices() {
  static std::map<uint32_t, uint64_t> slices;
  return slices;
}
std::atomic<bool> does_refuse{false};

std::string Script() {
  const char* script = std::getenv("TALLY_SCRIPT_SLICES");
  return script != nullptr ? script : "";
}

void Note(uint64_t slice_us) {
  const char* const path = std::getenv("TALLY_SCRIPT_NOTES");
  if (path == nullptr) return;
  std::ofstream(path, std::ios::app) << ::getpid() << ' ' << slice_us << std::endl;  // in one write
}

int ScriptedIoctl(int, unsigned long request, void* argument) {
  if (request == kAllocation) return 0;
  const std::lock_guard lock(mutex);
  auto* control = static_cast<Control*>(argument);
  auto* value = reinterpret_cast<uint64_t*>(control->parameters);
  control->status = 0;
  if (control->command == kGet) *value = Slices()[control->object];
  if (control->command != kSet) return 0;
  if (does_refuse && *value != kOwnSliceUs) {
    control->status = kNotSupported;
  } else {
    Slices()[control->object] = *value;
    Note(*value);
  }
  return 0;
}

}  // namespace

GpuChannelGroups& GpuChannelGroups::OfThisProcess() {
  static GpuChannelGroups* const groups = new GpuChannelGroups(&ScriptedIoctl);
  return *groups;
}

bool ScriptedDriver::IsScripted() { return !Script().empty(); }

void ScriptedDriver::MakeContext(int device) {
  const auto group = static_cast<uint32_t>(2 + device);
  {
    const std::lock_guard lock(mutex);
    if (Slices().contains(group) || Script() == "hide") return;
  }
  if (Script() == "refuse") does_refuse = true;
  uint64_t own_us = kOwnSliceUs;
  GroupParameters parameters{0, 0, 0, /*engine=*/1};
  Allocation made{
      1, static_cast<uint32_t>(100 + device), group, 0xA06C, reinterpret_cast<uint64_t>(&parameters), 0, 0, 0, 0, 0};
  if (std::getenv("TALLY_SCRIPT_DEVICES") != nullptr) {
    GpuChannelGroups::OfThisProcess().Forward(/*fd=*/7, kAllocation, &made);
  }
  Control control{1, group, kSet, 0, reinterpret_cast<uint64_t>(&own_us), sizeof(own_us), 0};
  GpuChannelGroups::OfThisProcess().Forward(/*fd=*/7, kControl, &control);
}

void ScriptedDriver::TakeBack() {
  does_refuse = true;
  const std::lock_guard lock(mutex);
  for (auto& [group, slice_us] : Slices()) slice_us = kOwnSliceUs;
}

}  // namespace tally::server
