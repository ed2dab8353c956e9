// Blocks of statements ({ ... }, as inline assembly has them) whose braces are taken away, so that the rest of the
// kernel can branch into them.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx-transforms/passes/variant.h"

namespace tally::ptx_transforms {

// Has nothing but instructions and registers of its own: no labels, variables or further blocks.
bool CanOpenBlock(const Block& block);

// The statements of `block`. Its registers get names that occur nowhere else; `number`: another one for every block.
std::vector<Statement> OpenBlock(Variant& variant, Block block, uint32_t number);

}  // namespace tally::ptx_transforms
