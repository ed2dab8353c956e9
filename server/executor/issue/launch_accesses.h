// What one launch reads and writes, as scheduler::Window wants to know it.
#pragma once

#include <span>
#include <vector>

#include "ptx-transforms/segments.h"
#include "scheduler/window/access.h"
#include "scheduler/window/window.h"
#include "server/executor/issue/launch_memory.h"

namespace tally::server {

struct LaunchAccesses {
  std::vector<scheduler::Access> accesses;
  scheduler::Extent extent = scheduler::Extent::kSaid;
  // Not null: nothing may run beside the launch, so it must not be held; accesses are empty and extent says anything.
  // Static; a code of docs/segments.md.
  const char* barrier = nullptr;
  ptx_transforms::SegmentClass widest = ptx_transforms::SegmentClass::kBox;  // of its accesses, for figures
  // Of a session's launches only those that touch the same have the same; 0: it has none.
  uint64_t name = 0;
};

// All that the launch may touch. `variables`: where the kernel's symbols are, in the order of segments.symbols; 0
// bytes: nobody knows. Memory of which nothing is known, that the host sees, or that has other names, makes a barrier.
// `answers`: empty; gets what was asked of memory, which is all that the result takes from there.
LaunchAccesses AccessesOf(const ptx_transforms::KernelSegments& segments, const ptx_transforms::SegmentLaunch& launch,
                          const LaunchMemory& memory, std::span<const ptx_transforms::MemorySpan> variables,
                          MemoryAnswers& answers);
// Of a launch of which no more is known.
LaunchAccesses BarrierFor(const char* code);

}  // namespace tally::server
