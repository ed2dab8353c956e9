// unify_barriers: all threads of a block leave a kernel together.
#pragma once

#include <memory>

#include "ptx-transforms/passes/pass.h"

namespace tally::ptx_transforms {

// Every ret and exit leads to one place at the end of the body, where all threads of the block meet and what the block
// has started asynchronously is waited for; then they leave through one ret. By itself that changes nothing that a
// program could see; persistent_blocks turns the ret into the next round.
//
// Threads that came to the end early must keep taking part in the barriers of the others, as exited threads need not.
// If it can be proved that all threads of a block always execute the same barriers, those stay as they are. If not,
// every barrier of the kernel becomes barrier.red.or: who waits inside the kernel contributes "true", who waits at the
// end "false"; as long as the result is true, those at the end wait for the next one. (Tally, section 4.1, with
// barriers that need not be aligned in place of one common place to which all jump.) A kernel that has reductions of
// its own gets two barriers for each of its one: the first says whether anybody is still inside, the second reduces.
std::unique_ptr<Pass> MakeUnifyBarriersPass();

}  // namespace tally::ptx_transforms
