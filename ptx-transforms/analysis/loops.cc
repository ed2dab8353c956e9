#include "ptx-transforms/analysis/loops.h"

#include <algorithm>

namespace tally::ptx_transforms {

bool Loop::Contains(uint32_t block) const { return std::binary_search(blocks.begin(), blocks.end(), block); }

Loops FindLoops(const ControlFlow& flow, const DominatorTree& dominators) {
  Loops found;
  std::vector<uint32_t> place(flow.blocks().size(), 0);
  for (uint32_t i = 0; i < flow.reverse_post_order().size(); ++i) place[flow.reverse_post_order()[i]] = i;
  std::vector<uint32_t> mark(flow.blocks().size(), 0);
  uint32_t generation = 0;
  for (const uint32_t latch : flow.reverse_post_order()) {
    for (const uint32_t header : flow.block(latch).successors) {
      if (place[header] > place[latch]) continue;
      if (!dominators.Dominates(header, latch)) {
        found.is_irreducible = true;
        continue;
      }
      Loop& loop = found.loops.emplace_back(Loop{header, latch, {header}});
      ++generation;
      mark[header] = generation;
      std::vector<uint32_t> open = {latch};
      while (!open.empty()) {
        const uint32_t block = open.back();
        open.pop_back();
        if (mark[block] == generation || !flow.block(block).is_reachable) continue;
        mark[block] = generation;
        loop.blocks.push_back(block);
        const auto& predecessors = flow.block(block).predecessors;
        open.insert(open.end(), predecessors.begin(), predecessors.end());
      }
      std::sort(loop.blocks.begin(), loop.blocks.end());
    }
  }
  return found;
}

}  // namespace tally::ptx_transforms
