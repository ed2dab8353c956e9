// What one launch touches, for people who write the launch by hand.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "ptx-transforms/segments.h"

namespace tally::ptx_transforms {

// A line per segment. `launch` is "GRID BLOCK PARAMETER...", as in "64,2 256 @4096 @4096 100 -1":
//   GRID, BLOCK   x[,y[,z]]
//   @BYTES[+N]    a pointer to so many bytes of its own, or to N (also -N) behind their start
//   N             a number, as wide as its parameter
//   A,B,...       the words of a structure: pointers and numbers of 8 bytes, numbers with a w behind them of 4
// The text calls the allocations @1, @2, ... and the module's variables by their names.
Result<std::string> LaunchAsText(const KernelSegments& kernel, std::string_view launch);

}  // namespace tally::ptx_transforms
