#include "ptx-transforms/analysis/dominators.h"

#include <algorithm>

namespace tally::ptx_transforms {

// Cooper, Harvey, Kennedy: "A Simple, Fast Dominance Algorithm".
DominatorTree::DominatorTree(const ControlFlow& flow, Direction direction) {
  const bool is_forward = direction == Direction::kForward;
  const auto next = [&](uint32_t b) -> const std::vector<uint32_t>& {
    return is_forward ? flow.block(b).successors : flow.block(b).predecessors;
  };
  const auto previous = [&](uint32_t b) -> const std::vector<uint32_t>& {
    return is_forward ? flow.block(b).predecessors : flow.block(b).successors;
  };
  const size_t size = flow.blocks().size();
  const uint32_t root = is_forward ? 0 : flow.exit_block();
  std::vector<uint32_t> walk;  // reverse post-order
  std::vector<bool> is_seen(size, false);
  std::vector<std::pair<uint32_t, size_t>> stack = {{root, 0}};
  is_seen[root] = true;
  while (!stack.empty()) {
    auto& [block, position] = stack.back();
    if (position == next(block).size()) {
      walk.push_back(block);
      stack.pop_back();
      continue;
    }
    const uint32_t successor = next(block)[position++];
    if (is_seen[successor] || !flow.block(successor).is_reachable) continue;
    is_seen[successor] = true;
    stack.emplace_back(successor, 0);
  }
  std::reverse(walk.begin(), walk.end());
  order_.assign(size, kNoBlock);
  parents_.assign(size, kNoBlock);
  for (uint32_t i = 0; i < walk.size(); ++i) order_[walk[i]] = i;
  parents_[root] = root;
  for (bool changed = true; changed;) {
    changed = false;
    for (const uint32_t block : walk) {
      if (block == root) continue;
      uint32_t meet = kNoBlock;
      for (uint32_t other : previous(block)) {
        if (order_[other] == kNoBlock || parents_[other] == kNoBlock) continue;
        if (meet == kNoBlock) {
          meet = other;
          continue;
        }
        uint32_t here = meet;
        while (here != other) {
          while (order_[here] > order_[other]) here = parents_[here];
          while (order_[other] > order_[here]) other = parents_[other];
        }
        meet = here;
      }
      if (meet != parents_[block]) {
        parents_[block] = meet;
        changed = true;
      }
    }
  }
  parents_[root] = kNoBlock;
}

bool DominatorTree::Dominates(uint32_t above, uint32_t below) const {
  if (!contains(above) || !contains(below)) return false;
  while (below != kNoBlock && order_[below] > order_[above]) below = parents_[below];
  return below == above;
}

std::vector<std::vector<uint32_t>> ControlDependences(const ControlFlow& flow, const DominatorTree& post_dominators) {
  std::vector<std::vector<uint32_t>> controllers(flow.blocks().size());
  for (uint32_t b = 0; b < flow.blocks().size(); ++b) {
    if (!post_dominators.contains(b) || flow.block(b).successors.size() < 2) continue;
    const uint32_t end = post_dominators.parent(b);
    for (uint32_t successor : flow.block(b).successors) {
      if (!post_dominators.contains(successor)) continue;
      for (uint32_t block = successor; block != end && block != kNoBlock; block = post_dominators.parent(block))
        if (controllers[block].empty() || controllers[block].back() != b) controllers[block].push_back(b);
    }
  }
  return controllers;
}

}  // namespace tally::ptx_transforms
