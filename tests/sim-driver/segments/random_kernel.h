// Random kernels of the shapes that programs have: loops in loops whose bounds depend on one another, guards, pointers
// that walk, callees, early returns, copies of pointers in local memory. random_index.h bends single numbers instead.
#pragma once

#include <string>

#include "tests/sim-driver/differential/generator/random_source.h"

namespace tally::ptx_transforms {

// `random_kernel(.u64 p, .u64 r, .u32 n, .u32 m, .s32 k)`: touches memory around p and r, and none that is further away
// from both than half an arena. Always ends, soon.
std::string RandomKernel(differential::RandomSource& random);

}  // namespace tally::ptx_transforms
