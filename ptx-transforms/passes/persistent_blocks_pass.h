// persistent_blocks: any number of persistent blocks does the work of a whole grid, one block of it after another.
#pragma once

#include <memory>

#include "ptx-transforms/passes/pass.h"

namespace tally::ptx_transforms {

// Appends device::PersistentParameters (proto/device/variant_abi.h) and puts a loop around the kernel's body:
//
//   next:   thread 0 takes the next index from control->next_block and puts it into shared memory
//           all meet; all read it; beyond the grid: ret
//           x, y, z from the index
//           ... the body, whose %ctaid and %nctaid are these ...
//   end:    all meet (unify_barriers); next
//
// An index that was taken is always executed, so every block runs exactly once whatever happens between. Two meetings
// per round keep the index of one round from overwriting that of the round before.
// The launch needs device::kPersistentSharedBytes of dynamic shared memory beyond the program's.
std::unique_ptr<Pass> MakePersistentBlocksPass();

}  // namespace tally::ptx_transforms
