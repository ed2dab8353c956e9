// Segments for people to read: what ptx-opt --segments prints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ptx-transforms/segments/kernel_segments.h"

namespace tally::ptx_transforms {

// "C0".
std::string ClassName(SegmentClass of_class);
std::string KindName(AccessKind kind);
// What the code of a barrier means, in a few words that go on after "it"; empty for a code that is none.
std::string_view BarrierMeaning(std::string_view code);
// Every code that BarrierMeaning knows.
std::vector<std::string_view> BarrierCodes();

// Why nothing may run beside the kernel: its barriers, and the first access that would be one at a launch.
std::vector<SegmentBarrier> BarriersOf(const KernelSegments& segments);
// The widest class among its accesses; kBox if it has none.
SegmentClass WidestClass(const KernelSegments& segments);
// "C1", "barrier", or "none" if it touches no global memory.
std::string VerdictOf(const KernelSegments& segments);

// Cut if it is very long: a formula may name one node very often.
std::string FormulaAsText(const KernelSegments& segments, NodeId node);
// "(tid.x < param_2)": those guards of the access that may bound its address.
std::vector<std::string> GuardsAsText(const KernelSegments& segments, const GlobalAccess& access);
// "parameters[8]", "parameters[8]?" (one of many slots), "table", "memory".
std::vector<std::string> RootsAsText(const KernelSegments& segments, const GlobalAccess& access);
// "0 + 1 * loop0 < param_2": another round needs all of them.
std::vector<std::string> TripsAsText(const KernelSegments& segments, uint32_t loop);
// A paragraph: the kernel's name and verdict, then a line per barrier, loop and access.
std::string SegmentsAsText(const KernelSegments& segments);

}  // namespace tally::ptx_transforms
