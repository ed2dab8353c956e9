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

// Puts finished variants, which are used up, into their module. With Placement::kOnly, for which they must have their
// own callees, without all that they do not need.
void PlaceVariants(Module& module, std::vector<Variant>& variants, const ImportTable& imports, std::string_view prefix,
                   Placement placement);

// Name of the table of imported variables.
std::string ImportTableName(std::string_view prefix);

}  // namespace tally::ptx_transforms
