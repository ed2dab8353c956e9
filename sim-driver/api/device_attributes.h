// What the software device answers to cuDeviceGetAttribute: a small sm_90.
#pragma once

#include <optional>

namespace tally::sim_driver {

// Empty for an attribute that does not exist. Those that differ between devices are answered by Device.
std::optional<int> DeviceAttribute(int attribute);

}  // namespace tally::sim_driver
