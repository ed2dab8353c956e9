// Assembly: assigns frame slots to virtual registers and lays out the final Instructions.
#pragma once

#include "base/status.h"
#include "sim-driver/engine/code.h"
#include "sim-driver/engine/lowering.h"

namespace tally::sim_driver {

// Fills `function` from `lowering`, which must be valid. Addresses inside `function` are final: it must not move.
// `functions` resolves OpCall targets: Instruction::x of a lowered call is the callee's index.
// kResourceExhausted: too many registers live across too many blocks.
Status Assemble(const Lowering& lowering, FunctionCode& function);

}  // namespace tally::sim_driver
