// gate_entry: blocks of a launch that have not begun leave when their queue is stopped, and run in a later launch.
#pragma once

#include <memory>

#include "ptx-transforms/passes/pass.h"

namespace tally::ptx_transforms {

// Appends device::GateParameters (proto/device/gate_abi.h) at GateOffset and puts the gate in front of the kernel's
// first instruction. Every warp asks for itself, before anything of the kernel runs, so this asks next to nothing of a
// kernel: it need not be understood, may synchronise as it likes, and blocks may wait for blocks of lower numbers,
// which always run before it is said that a later one does not.
//
// Where the text's target has them (sm_90, PTX 7.8), clusters are counted, and blocks that leave wait for the launch
// before them, as programmatic launches want it: Variant::gates_clusters. Else neither may be asked of the launch.
std::unique_ptr<Pass> MakeGateEntryPass();

}  // namespace tally::ptx_transforms
