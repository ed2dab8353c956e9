// Names of places for messages.
#pragma once

#include <string>

#include "sim-driver/engine/warp.h"

namespace tally::sim_driver {

// "PTX line 42 'st.global.u32 [%rd1], %r1;' in function f".
std::string DescribeInstruction(const Grid& grid, const FunctionCode& function, const Instruction* i);
// "thread (3,0,0)"; `thread` is the linear index in the block.
std::string DescribeThread(const Block& block, uint32_t thread);

}  // namespace tally::sim_driver
