// Basic blocks of a body and the ways between them.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx-transforms/analysis/linear_body.h"

namespace tally::ptx_transforms {

class ControlFlow {
 public:
  // `body` must outlive this.
  explicit ControlFlow(const LinearBody& body);

  // Instructions [begin, end); only the last may branch or leave.
  struct BasicBlock {
    uint32_t begin = 0;
    uint32_t end = 0;
    std::vector<uint32_t> successors = {};  // exit_block() where the thread may leave the function
    std::vector<uint32_t> predecessors = {};
    bool is_reachable = false;  // from the entry
  };

  const LinearBody& body() const { return body_; }
  const std::vector<BasicBlock>& blocks() const { return blocks_; }
  const BasicBlock& block(uint32_t index) const { return blocks_[index]; }
  uint32_t BlockOf(uint32_t instruction) const { return block_of_[instruction]; }
  // The block without instructions that every ret and exit leads to: the last. trap leads nowhere.
  uint32_t exit_block() const { return static_cast<uint32_t>(blocks_.size()) - 1; }
  // Blocks [0, exit_block()) hold instructions; 0 is the entry (also of an empty body, where it is the exit).

  // Reachable blocks, every block before its successors but for edges that close a loop.
  const std::vector<uint32_t>& reverse_post_order() const { return order_; }

 private:
  void Connect(uint32_t from, uint32_t to);

  const LinearBody& body_;
  std::vector<BasicBlock> blocks_;
  std::vector<uint32_t> block_of_;
  std::vector<uint32_t> order_;
};

// ret and exit: the thread leaves (a kernel, for good).
bool IsLeave(const Instruction& instruction);
// An instruction after which another one than the next may be executed.
bool EndsBasicBlock(const Instruction& instruction);

}  // namespace tally::ptx_transforms
