// What one launch may touch: the kernel's formulas with the launch's numbers.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "ptx-transforms/segments/boxes.h"
#include "ptx-transforms/segments/kernel_segments.h"
#include "ptx-transforms/segments/launch_values.h"

namespace tally::ptx_transforms {

// Memory that may be read or written. An atomic access is both.
struct Segment {
  SegmentBox box;
  AccessKind kind = AccessKind::kRead;
  SegmentClass of_class = SegmentClass::kBox;
  uint32_t access = 0;  // in KernelSegments; of several that touch one another, the first
};

// Memory that only the driver can name: behind a texture or surface handle, or a tensor map in the parameters.
struct ObjectUse {
  GlobalAccess::Object object = GlobalAccess::Object::kTexture;
  uint64_t value = 0;  // the handle, or the offset of the map's 128 bytes in the parameters
  AccessKind kind = AccessKind::kRead;
  bool operator==(const ObjectUse&) const = default;
};

struct LaunchSegments {
  // Not empty: nothing may run beside this launch, and the rest is void. The code of a SegmentBarrier, "cooperative",
  // or "pointer-from-memory".
  std::string barrier;
  // Reads through pointers from memory: ordered against everything that writes.
  bool reads_anything = false;
  std::vector<Segment> segments;
  std::vector<ObjectUse> objects;
  // Accesses by class.
  std::array<uint32_t, kNumSegmentClasses> num_accesses{};
};

// Errs towards more: see the classes. Numbers that overflow, and boxes that are not bounded or of which only memory
// knows where they lie and that leave their allocation, become the allocations of the pointers' roots. Deterministic;
// O(accesses + nodes of the formulas).
LaunchSegments EvaluateSegments(const KernelSegments& segments, const SegmentLaunch& launch,
                                const SegmentMemory& memory);

}  // namespace tally::ptx_transforms
