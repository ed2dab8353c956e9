// Back from variants to modules and text.
#pragma once

#include <string>
#include <vector>

#include "ptx-transforms/passes/variant.h"
#include "ptx-transforms/transform.h"

namespace tally::ptx_transforms {

// The variant as a module of its own: head, its declarations, its functions, its kernel. Not complete (what it shares
// with the original module is missing), but PTX that parses.
std::string VariantText(const Variant& variant);

// Puts finished variants, which are used up, into their module. `keeps_variables`: as they are; else without the
// .global and .const variables, which the variants import.
void PlaceVariants(Module& module, std::vector<Variant>& variants, Placement placement, bool keeps_variables);

}  // namespace tally::ptx_transforms
