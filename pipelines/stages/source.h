// The source of a chain's kernel, for NVRTC: the table of layers, the products of its widths, and vertical.cuh.
#pragma once

#include <string>

#include "pipelines/plan/chain.h"
#include "pipelines/plan/plan.h"

namespace tally::pipelines {

inline constexpr const char* kKernelName = "tally_vertical";

// `chain` has passed Check, `variant` is one of its variants.
std::string KernelSource(const Chain& chain, const Variant& variant);

}  // namespace tally::pipelines
