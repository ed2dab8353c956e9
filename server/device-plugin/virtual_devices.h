// The devices that kubelet sees: so many of each GPU, each of them a share that one container gets.
//
// A device is named by its GPU's UUID and a number, because kubelet remembers names over restarts of everything. Its
// tenant has the resource's name before that, so that no two devices of a machine are one tenant. Pure values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace tally::device_plugin {

inline constexpr int kMostDevicesPerGpu = 64;  // as many grants as tallyd has room for on eight GPUs, twice

struct Resource {
  std::string name;      // "tally.dev/gpu"
  std::string endpoint;  // file name of its socket
  std::string prefix;    // of its tenants
  bool is_high = false;
  int devices_per_gpu = 0;    // 0: the resource is not offered
  uint64_t memory_bytes = 0;  // of device memory that a grant has; 0: as tallyd is configured
};

// GPUs by UUID, and whether each is well. One that is gone stays, as lost: kubelet must hear of it.
class GpuRoster {
 public:
  // What is there now. True: something has changed.
  bool See(const std::vector<std::string>& uuids);
  const std::map<std::string, bool>& gpus() const { return gpus_; }

 private:
  std::map<std::string, bool> gpus_;
};

// Its devices by name, and whether each is well.
std::map<std::string, bool> DevicesOf(const Resource& resource, const std::map<std::string, bool>& gpus);

// The UUID of the GPU that a device is a share of; empty: it is of one that has none, the software GPU.
std::string GpuOf(const std::string& device);

// The tenant whose grant a device is.
std::string TenantOf(const Resource& resource, const std::string& device);

// That one container may have what it asks for: one device that there is and that is well. `ids` may be anything.
Status CheckWish(const Resource& resource, const std::vector<std::string>& ids,
                 const std::map<std::string, bool>& devices);

}  // namespace tally::device_plugin
