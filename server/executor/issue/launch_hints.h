// Launch attributes that are hints: with or without them a launch does the same, behind all that its stream has had.
//
// A programmatic launch is among them. It may begin before the kernel in front of it has ended, and waits for it then
// (griddepcontrol.wait): in a graph, where it begins later, that wait is over at once.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <span>

namespace tally::server {

inline bool AreHints(std::span<const CUlaunchAttribute> attributes) {
  return std::ranges::all_of(attributes, [](const CUlaunchAttribute& attribute) {
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return true;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        return attribute.value.cooperative == 0;
      default:
        return false;
    }
  });
}

}  // namespace tally::server
