// Who must be passed on the way: dominators, post-dominators, and which branches decide whether a block is executed.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx-transforms/analysis/control_flow.h"

namespace tally::ptx_transforms {

inline constexpr uint32_t kNoBlock = ~uint32_t{0};

// A tree over the blocks of a ControlFlow. Blocks that the root does not reach are in no relation to anybody.
class DominatorTree {
 public:
  enum class Direction : uint8_t {
    kForward,   // the root is the entry: every path to a block passes its dominators
    kBackward,  // the root is the exit: every path from a block that ends passes its post-dominators
  };
  DominatorTree(const ControlFlow& flow, Direction direction);

  // Null (kNoBlock) of the root and of blocks outside the tree.
  uint32_t parent(uint32_t block) const { return parents_[block]; }
  bool contains(uint32_t block) const { return order_[block] != kNoBlock; }
  // Reflexive. O(depth).
  bool Dominates(uint32_t above, uint32_t below) const;

 private:
  std::vector<uint32_t> parents_;
  std::vector<uint32_t> order_;  // place in the walk from the root; kNoBlock: outside
};

// For every block the blocks whose branch decides whether it is executed (not transitive). Only executions that end
// count: a path that traps or runs forever decides nothing about the barriers of the others.
std::vector<std::vector<uint32_t>> ControlDependences(const ControlFlow& flow, const DominatorTree& post_dominators);

}  // namespace tally::ptx_transforms
