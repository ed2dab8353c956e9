// yield_check: persistent blocks give the GPU back when asked.
#pragma once

#include <memory>

#include "ptx-transforms/passes/pass.h"

namespace tally::ptx_transforms {

// Before thread 0 of a persistent block (persistent_blocks) takes a block it reads the flag whose address is in
// PersistentParameters::yield_flag; if it is set, the persistent block ends as if the grid were done. Nothing has been
// taken then, so the next run of the launch goes on where this one stopped.
std::unique_ptr<Pass> MakeYieldCheckPass();

}  // namespace tally::ptx_transforms
