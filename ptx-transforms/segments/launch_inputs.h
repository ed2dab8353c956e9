// Which bytes of its parameters decide what a launch touches. The others (a time step, a factor) may change from launch
// to launch, and EvaluateSegments says the same.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx-transforms/segments/kernel_segments.h"

namespace tally::ptx_transforms {

struct ParameterPiece {
  uint32_t offset = 0;  // bytes
  uint32_t bytes = 0;
  bool operator==(const ParameterPiece&) const = default;
};

// By offset, neither touching nor overlapping. May name bytes that do not matter after all; O(size of the formulas).
std::vector<ParameterPiece> LaunchInputs(const KernelSegments& segments);

}  // namespace tally::ptx_transforms
