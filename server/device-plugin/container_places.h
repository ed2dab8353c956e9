// What a container gets, and where it appears in there: a tenant's socket and our libcuda.so.1, both where programs
// look for them without being told. So the image stays as it is, and no variable says anything that matters.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "proto/kubelet/device_plugin.pb.h"

namespace tally::device_plugin {

struct ContainerPlaces {
  std::string client_library;                // ours, a path of the host
  std::vector<std::string> image_libraries;  // where images look for libcuda.so.1
  std::string cdi_directory;                 // empty: mounts are said to kubelet; else by CDI specifications in here
};

// Mounts for one tenant, or the name of a CDI device whose specification this writes.
Result<v1beta1::ContainerAllocateResponse> Furnish(const ContainerPlaces& places, const std::string& tenant,
                                                   const std::string& socket);

}  // namespace tally::device_plugin
