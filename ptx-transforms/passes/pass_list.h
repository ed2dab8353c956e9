// The one table of passes.
#pragma once

#include <span>
#include <string_view>

#include "ptx-transforms/passes/pass.h"

namespace tally::ptx_transforms {

// In the order in which they run.
std::span<const PassEntry> AllPasses();
// Null if there is none of that name.
const PassEntry* FindPass(std::string_view name);

}  // namespace tally::ptx_transforms
