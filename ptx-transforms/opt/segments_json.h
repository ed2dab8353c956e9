// What ptx-opt --segments=json prints. The fields: docs/ptx-opt.md.
#pragma once

#include <span>
#include <string>

#include "ptx-transforms/segments.h"

namespace tally::ptx_transforms {

std::string SegmentsAsJson(std::span<const KernelSegments> kernels);

}  // namespace tally::ptx_transforms
