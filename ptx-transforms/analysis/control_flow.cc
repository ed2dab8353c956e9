#include "ptx-transforms/analysis/control_flow.h"

#include <algorithm>

namespace tally::ptx_transforms {

bool IsLeave(const Instruction& instruction) { return instruction.opcode == "ret" || instruction.opcode == "exit"; }

bool EndsBasicBlock(const Instruction& instruction) {
  return IsLeave(instruction) || instruction.opcode == "bra" || instruction.opcode == "brx" ||
         instruction.opcode == "trap";
}

ControlFlow::ControlFlow(const LinearBody& body) : body_(body) {
  const auto size = static_cast<uint32_t>(body.size());
  std::vector<bool> is_start(size + 1, false);
  if (size > 0) is_start[0] = true;
  for (uint32_t i = 0; i < size; ++i) {
    if (!EndsBasicBlock(*body[i].instruction)) continue;
    is_start[i + 1] = true;
    for (const uint32_t target : body[i].targets) is_start[target] = true;
  }
  block_of_.resize(size + 1);
  for (uint32_t i = 0; i < size; ++i) {
    if (is_start[i]) blocks_.push_back({.begin = i, .end = i});
    blocks_.back().end = i + 1;
    block_of_[i] = static_cast<uint32_t>(blocks_.size()) - 1;
  }
  block_of_[size] = static_cast<uint32_t>(blocks_.size());  // running off the end is leaving
  blocks_.push_back({.begin = size, .end = size});
  for (uint32_t b = 0; b < exit_block(); ++b) {
    const Instruction& last = *body[blocks_[b].end - 1].instruction;
    const bool always = !last.guard.is_present();
    if (IsLeave(last)) {
      Connect(b, exit_block());
    } else {
      for (const uint32_t target : body[blocks_[b].end - 1].targets) Connect(b, block_of_[target]);
    }
    if (!EndsBasicBlock(last) || !always) Connect(b, block_of_[blocks_[b].end]);
  }
  // Depth first without recursion: hostile code may have a path as long as itself.
  std::vector<std::pair<uint32_t, size_t>> stack = {{0, 0}};
  blocks_[0].is_reachable = true;
  while (!stack.empty()) {
    auto& [block, next] = stack.back();
    if (next == blocks_[block].successors.size()) {
      order_.push_back(block);
      stack.pop_back();
      continue;
    }
    const uint32_t successor = blocks_[block].successors[next++];
    if (blocks_[successor].is_reachable) continue;
    blocks_[successor].is_reachable = true;
    stack.emplace_back(successor, 0);
  }
  std::reverse(order_.begin(), order_.end());
}

void ControlFlow::Connect(uint32_t from, uint32_t to) {
  auto& successors = blocks_[from].successors;
  if (std::find(successors.begin(), successors.end(), to) != successors.end()) return;
  successors.push_back(to);
  blocks_[to].predecessors.push_back(from);
}

}  // namespace tally::ptx_transforms
