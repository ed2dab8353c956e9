#include "client-shim/state/visible_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

namespace tally::client_shim {
namespace {

std::string UuidText(const shm::DeviceDescription& device) {
  const uint8_t* b = device.uuid;
  return fmt::format(
      "GPU-{:02x}{:02x}{:02x}{:02x}-{:02x}{:02x}-{:02x}{:02x}-{:02x}{:02x}-{:02x}{:02x}{:02x}{:02x}{:02x}{:02x}", b[0],
      b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// All that are not hidden, by their order.
std::vector<int> AllowedDevices(std::span<const shm::DeviceDescription> devices) {
  std::vector<int> allowed;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].order != shm::kHiddenDevice) allowed.push_back(static_cast<int>(i));
  }
  std::ranges::stable_sort(allowed, {}, [&](int device) { return devices[static_cast<size_t>(device)].order; });
  return allowed;
}

// Of the `allowed` ones. -1 when `entry` names no device, or more than one.
int FindDevice(std::string_view entry, std::span<const shm::DeviceDescription> devices,
               const std::vector<int>& allowed) {
  if (entry.starts_with("GPU-")) {
    int found = -1;
    for (const int device : allowed) {
      if (!UuidText(devices[static_cast<size_t>(device)]).starts_with(entry)) continue;
      if (found >= 0) return -1;
      found = device;
    }
    return found;
  }
  int ordinal = -1;
  // Digits first, the rest ignored, as the native driver's strtol does.
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), ordinal);
  if (error != std::errc() || end == entry.data()) return -1;
  const auto number = static_cast<size_t>(ordinal);
  return ordinal >= 0 && number < allowed.size() ? allowed[number] : -1;
}

}  // namespace

std::expected<std::vector<int>, CUresult> VisibleDevices(const char* filter,
                                                         std::span<const shm::DeviceDescription> devices) {
  const std::vector<int> allowed = AllowedDevices(devices);
  if (filter == nullptr) return allowed;
  std::vector<int> visible;
  std::string_view rest = filter;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const int device = FindDevice(Trimmed(rest.substr(0, comma)), devices, allowed);
    if (device < 0) break;
    if (std::ranges::find(visible, device) != visible.end()) return std::unexpected(CUDA_ERROR_INVALID_DEVICE);
    visible.push_back(device);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return visible;
}

}  // namespace tally::client_shim
