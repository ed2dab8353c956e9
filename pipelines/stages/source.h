// The source of a chain's kernel, for NVRTC: the table of layers, the products of its widths, and the form's own text.
#pragma once

#include <string>

#include "pipelines/plan/chain.h"
#include "pipelines/plan/plan.h"

namespace tally::pipelines {

// Says to Tally that blocks go round in a loop, so that a larger grid does the same (proto/device/any_grid.h).
inline constexpr const char* kKernelName = "tally_any_grid_vertical";

// `chain` has passed Check, `variant` is one of its variants.
std::string KernelSource(const Chain& chain, const Variant& variant);

}  // namespace tally::pipelines
