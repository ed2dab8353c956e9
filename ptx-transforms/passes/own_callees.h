// Copies of the functions that a kernel calls, for passes that must rewrite them too.
#pragma once

#include "ptx-transforms/passes/variant.h"

namespace tally::ptx_transforms {

// Gives the variant its own copy of every function it may call (Variant::functions) and lets its calls, and those among
// the copies, go there. Does nothing the second time. The originals, which other kernels call, stay as they are.
void OwnCallees(Variant& variant);

}  // namespace tally::ptx_transforms
