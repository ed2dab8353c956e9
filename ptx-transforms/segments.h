// Front desk of segments: which global memory a kernel reads and writes.
//
//   FindSegments(module)                 formulas, once per module
//   EvaluateSegments(kernel, launch)     boxes of bytes, once per launch (segments/evaluate.h)
//
// Pure: no GPU, no threads, no clock. What cannot be followed becomes wider, never narrower: a box becomes an interval,
// the allocation that the pointer came from, several, or everything; what has to be alone says so as a barrier, by
// name.
//
// Rests on this: a pointer that is made from another one by adding stays in that one's allocation, as C++ wants it. It
// is asked only where indices cannot be bounded by the launch itself.
//
// Source: "ACS: Concurrent Kernel Execution on Irregular, Input-Dependent Computational Graphs", III-C, where people
// write these annotations by hand and segments are intervals.
//
// For people: ptx-opt --segments, docs/segments.md.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ptx-transforms/ptx_module.h"
#include "ptx-transforms/segments/evaluate.h"         // IWYU pragma: export
#include "ptx-transforms/segments/kernel_segments.h"  // IWYU pragma: export
#include "ptx-transforms/segments/launch_inputs.h"    // IWYU pragma: export
#include "ptx-transforms/segments/segment_text.h"     // IWYU pragma: export

namespace tally::ptx_transforms {

// One for each kernel that the module defines, in its order. The results do not refer to the module.
std::vector<KernelSegments> FindSegments(const Module& module);
// Of one kernel; nothing: the module does not define it.
std::optional<KernelSegments> FindSegments(const Module& module, std::string_view kernel);

}  // namespace tally::ptx_transforms
