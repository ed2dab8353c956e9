// A CDI specification: what a container engine does to a container that gets one of our devices.
#pragma once

#include <string>
#include <vector>

namespace tally::cli {

struct CdiPlaces {
  std::string client_library;                // of this machine
  std::string socket;                        // tallyd's client socket on this machine
  std::vector<std::string> image_libraries;  // where programs in images find libcuda.so.1
  std::string tenant{};                      // whose socket it is; empty: everybody's
};

// Where the loaders of Debian's and Ubuntu's images, and those of Red Hat's and SUSE's, look by default.
inline constexpr const char* kImageLibraries[] = {"/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1"};

// Where Triton is sent: it asks the image's `ldconfig -p`, which does not know what was mounted.
inline constexpr const char* kClientDirectoryInside = "/usr/lib/tally/client";

// JSON. Devices tally.dev/gpu=best-effort and tally.dev/gpu=high; of a grant tally.dev/gpu=TENANT alone.
std::string CdiSpecification(const CdiPlaces& places);

// All of it or nothing: an engine reads the directory whenever a container starts. Makes the directory if need be.
// Empty: done; else why not.
std::string WriteCdiSpecification(const std::string& path, const std::string& text);

}  // namespace tally::cli
