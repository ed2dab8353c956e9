// What slice_grid and persistent_blocks both ask of a kernel, and how both hand it their parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ptx-transforms/passes/pass.h"

namespace tally::ptx_transforms {

// The blocks of the grid may run one after another, in any grouping and order.
std::optional<Refusal> CheckGridRules(const Variant& variant, const Features& features);

// Appends ".param .align ALIGN .b8 PREFIXname[SIZE]" and notes its offset. Refuses if the parameters become too many.
std::optional<Refusal> AddHiddenParameter(Variant& variant, std::string_view name, uint32_t size, uint32_t align);

}  // namespace tally::ptx_transforms
