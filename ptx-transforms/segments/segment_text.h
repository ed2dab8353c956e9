// Segments for people to read: what ptx-opt --segments prints.
#pragma once

#include <string>

#include "ptx-transforms/segments/kernel_segments.h"

namespace tally::ptx_transforms {

// "C0".
std::string ClassName(SegmentClass of_class);
std::string KindName(AccessKind kind);
// A paragraph: the kernel's name, then a line per barrier, loop and access.
std::string SegmentsAsText(const KernelSegments& segments);

}  // namespace tally::ptx_transforms
