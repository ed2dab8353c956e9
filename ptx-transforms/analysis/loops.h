// The loops of a function, one per edge that closes one.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx-transforms/analysis/control_flow.h"
#include "ptx-transforms/analysis/dominators.h"

namespace tally::ptx_transforms {

struct Loop {
  uint32_t header = 0;
  uint32_t latch = 0;            // the block whose edge to the header closes the loop
  std::vector<uint32_t> blocks;  // header and latch included, sorted

  bool Contains(uint32_t block) const;
};

struct Loops {
  std::vector<Loop> loops;
  // Some cycle can be entered at more than one block, so `loops` does not list all.
  bool is_irreducible = false;
};

Loops FindLoops(const ControlFlow& flow, const DominatorTree& dominators);

}  // namespace tally::ptx_transforms
