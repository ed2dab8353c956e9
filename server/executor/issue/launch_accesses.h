// What one launch touches, as its window wants it.
#pragma once

#include <vector>

#include "ptx-transforms/segments.h"
#include "scheduler/window/access.h"
#include "scheduler/window/window.h"

namespace tally::server {

struct LaunchAccesses {
  std::vector<scheduler::Access> accesses;
  scheduler::Extent extent = scheduler::Extent::kSaid;
  const char* barrier = nullptr;  // why it must not be held: one of control::kWindowBarriers; null: it may be
  ptx_transforms::SegmentClass widest = ptx_transforms::SegmentClass::kBox;  // of its accesses
};

}  // namespace tally::server
