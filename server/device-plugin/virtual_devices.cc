#include "server/device-plugin/virtual_devices.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "proto/control/granted_gpus.h"

namespace tally::device_plugin {
namespace {

constexpr size_t kMostLettersSaid = 64;

}  // namespace

bool GpuRoster::See(const std::vector<std::string>& uuids) {
  const auto before = gpus_;
  for (auto& [uuid, is_well] : gpus_) is_well = false;
  for (const std::string& uuid : uuids) gpus_[uuid] = true;
  return gpus_ != before;
}

std::map<std::string, bool> DevicesOf(const Resource& resource, const std::map<std::string, bool>& gpus) {
  std::map<std::string, bool> devices;
  for (const auto& [uuid, is_well] : gpus) {
    for (int i = 0; i < resource.devices_per_gpu; ++i) devices[fmt::format("{}-{}", uuid, i)] = is_well;
  }
  return devices;
}

std::string GpuOf(const std::string& device) {
  const std::string gpu = device.substr(0, device.rfind('-'));
  return control::IsNameOfGpu(gpu) ? gpu : "";
}

std::string TenantOf(const Resource& resource, const std::string& device) { return resource.prefix + device; }

Status CheckWish(const Resource& resource, const std::vector<std::string>& ids,
                 const std::map<std::string, bool>& devices) {
  if (ids.size() != 1) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a container asks for {} devices of {}: it gets one, which is a share of the GPUs "
                              "(more memory is an option of tally-device-plugin)",
                              ids.size(), resource.name));
  }
  const auto device = devices.find(ids.front());
  if (device == devices.end()) {
    return Status(StatusCode::kNotFound,
                  fmt::format("{} has no device {}: there are {}, of {} for each GPU", resource.name,
                              Quoted(ids.front(), kMostLettersSaid), devices.size(), resource.devices_per_gpu));
  }
  if (!device->second) {
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("device {} of {} is not well: its GPU is lost, or tallyd does not answer",
                              Quoted(ids.front(), kMostLettersSaid), resource.name));
  }
  return OkStatus();
}

}  // namespace tally::device_plugin
