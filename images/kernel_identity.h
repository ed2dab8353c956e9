// What tells a kernel in a cubin from all others, so that it is recognised after a linker has moved it to another file.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tally::images {

struct KernelIdentity {
  std::string_view name;
  // Name, machine code, constants of its own, and the variables that it names, where, and their first values. Empty for
  // a kernel that is not understood without the rest of its program: it calls functions in other sections (but printf,
  // malloc, free, assert), or names what its file does not define. Machine code that a linker has changed (which it
  // does for the second array in shared memory) is another identity.
  std::vector<std::byte> identity;
};

// Of all kernels of a cubin, linked or not. kInvalidArgument, kDataLoss: as for CubinView.
Result<std::vector<KernelIdentity>> IdentifyKernels(std::span<const std::byte> cubin);

}  // namespace tally::images
