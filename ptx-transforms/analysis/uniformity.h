// Which values and branches are the same for all threads of a block, or of a warp.
//
// Without SSA: a register is as varied as the most varied of its definitions, and a definition is at least as varied
// as the branches that decide whether it is executed. Errs on the side of kThread.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx-transforms/analysis/control_flow.h"
#include "ptx-transforms/analysis/dominators.h"

namespace tally::ptx_transforms {

enum class Variance : uint8_t {
  kBlock,   // every thread of the block sees the same sequence of values
  kWarp,    // every thread of a warp does
  kThread,  // nothing is known
};

struct UniformityOptions {
  // Take it that all threads of a warp have the same %tid.y and .z, and its %tid.x / 32: so in blocks with one row, or
  // with rows of whole warps.
  bool warps_are_rows = false;
  // By block: the branch at its end decides nothing. What is said then holds among the lanes that have so far gone the
  // same way at all of these branches, and in the blocks from which one of them can still be reached or that lie on
  // that common way. Only read while the object is made. Null: none.
  const std::vector<bool>* ignored_branches = nullptr;
};

class Uniformity {
 public:
  Uniformity(const ControlFlow& flow, const UniformityOptions& options);

  Variance OfRegister(RegisterId reg) const { return registers_[reg]; }
  // How much threads differ in whether, or how often, they come to a block.
  Variance OfBlock(uint32_t block) const { return blocks_[block]; }
  // In which way a block is left.
  Variance OfBranch(uint32_t block) const;
  // Whether, or how often, an instruction is executed: OfBlock and its guard.
  Variance OfExecution(uint32_t instruction) const;

  // The blocks whose branches decide about any of `blocks`, at once or through others; each once.
  std::vector<uint32_t> AllControllersOf(std::vector<uint32_t> blocks) const;

 private:
  Variance OfDefinition(uint32_t index) const;
  Variance OfSpecialRegister(const Operand& operand) const;
  Variance OfOperands(uint32_t index) const;
  bool IsThreadX(uint32_t index, const Operand& operand) const;
  bool IsWarpOfThreadX(uint32_t index) const;
  bool SpreadRegisters();
  bool SpreadBlocks();

  const ControlFlow& flow_;
  const LinearBody& body_;
  const UniformityOptions options_;
  std::vector<std::vector<uint32_t>> controllers_;
  std::vector<Variance> registers_;
  std::vector<Variance> blocks_;
  std::vector<bool> is_thread_x_;  // registers that only ever hold %tid.x
};

}  // namespace tally::ptx_transforms
