// slice_grid: a part of the grid can be launched by itself.
#pragma once

#include <memory>

#include "ptx-transforms/passes/pass.h"

namespace tally::ptx_transforms {

// Appends device::SliceParameters (proto/device/variant_abi.h). Each read of %ctaid becomes first_block + %ctaid, each
// of %nctaid the whole grid's size. A block runs as before, so this asks little of a kernel: no block may depend on
// another one being there at the same time.
std::unique_ptr<Pass> MakeSliceGridPass();

}  // namespace tally::ptx_transforms
