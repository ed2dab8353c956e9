// Random kernels that compute an address in every way that integers can be bent: whatever the analysis believes of an
// instruction, here is one that finds out.
#pragma once

#include <string>

#include "tests/sim-driver/differential/generator/random_source.h"

namespace tally::ptx_transforms {

inline constexpr uint64_t kArenaBytes = uint64_t{1} << 20;
// What pointers that are passed to kernels point to, in the arena.
inline constexpr uint64_t kArenaMiddle = kArenaBytes / 2;

// `index_kernel(.u64 p, .u32 n, .u32 m, .s32 k, .u64 q)`: reads and writes single bytes around p, and none outside of
// the arena. Always ends.
std::string RandomIndexKernel(differential::RandomSource& random);

// A number that programs pass: small, a power of two or near one, negative, or anything.
uint32_t RandomSize(differential::RandomSource& random);

}  // namespace tally::ptx_transforms
