// Whether a rewritten kernel is still a kernel: what must hold after every pass.
#pragma once

#include <optional>
#include <string>

#include "ptx-transforms/passes/variant.h"

namespace tally::ptx_transforms {

// Null if all holds:
//   * the text parses without an unknown part and prints to itself;
//   * every register and label is declared, each label once;
//   * after slice_grid and persistent_blocks: no statement of the program's own reads %ctaid or %nctaid.
// Else a sentence.
std::optional<std::string> VerifyVariant(const Variant& variant);

}  // namespace tally::ptx_transforms
