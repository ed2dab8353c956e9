// Operations that several families emit.
#pragma once

#include <string>

#include "sim-driver/engine/instruction.h"
#include "sim-driver/engine/lowering.h"
#include "sim-driver/engine/warp.h"

namespace tally::sim_driver {

// ---- control.cc
void OpBranch(Warp& w, const Instruction& i);             // target
void OpBranchConditional(Warp& w, const Instruction& i);  // predicate a, negated if x; list: where lanes meet again
void OpConverge(Warp& w, const Instruction& i);           // lanes meet here
void OpGuard(Warp& w, const Instruction& i);              // the next instruction for lanes with a (negated if x)
void OpEndOfFunction(Warp& w, const Instruction& i);      // control fell off the end
void OpExit(Warp& w, const Instruction& i);
// The running split goes two ways: `other` lanes continue at `other_pc`; all meet at `meeting` (null: nowhere).
void SplitWarp(Warp& w, uint32_t other, const Instruction* other_pc, const Instruction* meeting);
// Takes lanes of the running split out of all records up to (not including) `until`, completing those that only waited
// for them.
void LeaveRecords(Warp& w, uint32_t lanes, Record* from, const Record* until);
void FreeRecord(Warp& w, Record* record);
Record* NewRecord(Warp& w);

// ---- special.cc
void OpLocalAddress(Warp& w, const Instruction& i);          // d (64 bit) = frame's local memory + imm
void OpVariableAddress(Warp& w, const Instruction& i);       // d (64 bit) = variable x + imm
void OpDynamicSharedAddress(Warp& w, const Instruction& i);  // d (64 bit) = start of extern .shared + imm
VirtualOperand EmitSpecialRegister(Lowering& l, std::string_view name, char component, uint32_t width_bytes);

// ---- bits.cc
OpFunction MoveOp(uint32_t width_bytes);  // d = a, for a register class
OpFunction NotPredicateOp();
// d (class `to`) = the `type` in the low bits of a (class `from`), zero- or sign-extended.
OpFunction ExtendOp(uint32_t to_bytes, uint32_t from_bytes, ScalarType type);

// ---- bits.cc: 128-bit registers as two of 64 bits
void EmitSplit128(Lowering& l, const VirtualOperand parts[2], VirtualOperand whole);
void EmitJoin128(Lowering& l, VirtualOperand whole, const VirtualOperand parts[2]);

// ---- memory.cc
// Loads a function's register parameter from its frame's parameter area / stores a returned one.
void EmitFrameParameterLoad(Lowering& l, VirtualOperand d, uint32_t offset, uint32_t width_bytes);
void EmitFrameParameterStore(Lowering& l, VirtualOperand a, uint32_t offset, uint32_t width_bytes);

// ---- fault.cc
// Ends the launch: stops the warp with a Fault that names `lane` (of the running split; 32: the first active one) and
// the instruction.
void RaiseFault(Warp& w, const Instruction& i, uint32_t lane, int cu_result, std::string_view what);

}  // namespace tally::sim_driver
