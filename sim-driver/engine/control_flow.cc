#include "sim-driver/engine/control_flow.h"

#include <algorithm>

namespace tally::sim_driver {
namespace {

// Immediate post-dominators by the iterative method of Cooper, Harvey and Kennedy on the reversed graph, from `exit`.
// -1 for blocks that cannot reach it (and for it).
std::vector<int32_t> PostDominators(const std::vector<BasicBlock>& blocks, uint32_t exit) {
  std::vector<int32_t> order(blocks.size(), -1);  // reverse post-order number in the reversed graph
  std::vector<uint32_t> sequence;
  std::vector<std::pair<uint32_t, size_t>> stack{{exit, 0}};
  std::vector<bool> seen(blocks.size(), false);
  seen[exit] = true;
  while (!stack.empty()) {
    auto& [block, next] = stack.back();
    if (next < blocks[block].predecessors.size()) {
      uint32_t predecessor = blocks[block].predecessors[next++];
      if (!seen[predecessor]) {
        seen[predecessor] = true;
        stack.emplace_back(predecessor, 0);
      }
    } else {
      sequence.push_back(block);
      stack.pop_back();
    }
  }
  std::reverse(sequence.begin(), sequence.end());
  for (size_t k = 0; k < sequence.size(); ++k) order[sequence[k]] = static_cast<int32_t>(k);
  std::vector<int32_t> dominator(blocks.size(), -1);
  dominator[exit] = static_cast<int32_t>(exit);
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t block : sequence) {
      if (block == exit) continue;
      int32_t best = -1;
      for (uint32_t successor : blocks[block].successors) {
        if (order[successor] < 0 || dominator[successor] < 0) continue;
        if (best < 0) {
          best = static_cast<int32_t>(successor);
          continue;
        }
        int32_t left = best;
        int32_t right = static_cast<int32_t>(successor);
        while (left != right) {
          while (order[left] > order[right]) left = dominator[left];
          while (order[right] > order[left]) right = dominator[right];
        }
        best = left;
      }
      if (dominator[block] != best) {
        dominator[block] = best;
        changed = true;
      }
    }
  }
  dominator[exit] = -1;
  return dominator;
}

}  // namespace

ControlFlow AnalyseControlFlow(const Lowering& lowering) {
  const auto& instructions = lowering.instructions;
  ControlFlow flow;
  std::vector<bool> leads(instructions.size() + 1, false);
  leads[0] = true;
  auto position = [&](int32_t label) { return static_cast<uint32_t>(lowering.label_positions[label]); };
  for (size_t k = 0; k < instructions.size(); ++k) {
    const LoweredInstruction& instruction = instructions[k];
    bool ends = instruction.ends_block || instruction.label >= 0 || instruction.rejoins_next;
    if (instruction.label >= 0) leads[position(instruction.label)] = true;
    for (int32_t label : instruction.labels) leads[position(label)] = true;
    if (ends || !instruction.labels.empty()) leads[k + 1] = true;
  }
  flow.block_of.resize(instructions.size());
  for (size_t k = 0; k < instructions.size(); ++k) {
    if (leads[k]) flow.blocks.push_back({.begin = static_cast<uint32_t>(k)});
    flow.blocks.back().end = static_cast<uint32_t>(k + 1);
    flow.block_of[k] = static_cast<uint32_t>(flow.blocks.size() - 1);
  }
  int32_t exit = -1;
  for (uint32_t b = 0; b < flow.blocks.size(); ++b) {
    BasicBlock& block = flow.blocks[b];
    const LoweredInstruction& last = instructions[block.end - 1];
    auto link = [&](uint32_t instruction) {
      uint32_t successor = flow.block_of[instruction];
      if (std::find(block.successors.begin(), block.successors.end(), successor) == block.successors.end()) {
        block.successors.push_back(successor);
        flow.blocks[successor].predecessors.push_back(b);
      }
    };
    if (last.label >= 0) link(position(last.label));
    for (int32_t label : last.labels) link(position(label));
    if (!last.ends_block && block.end < instructions.size()) link(block.end);
  }
  // The last return (or exit) that anything leads to; the end-of-function guard that Lowering adds is rarely it.
  for (uint32_t b = 0; b < flow.blocks.size(); ++b) {
    const BasicBlock& block = flow.blocks[b];
    if (block.successors.empty() && (b == 0 || !block.predecessors.empty())) exit = static_cast<int32_t>(b);
  }
  std::vector<int32_t> meeting(flow.blocks.size(), -1);
  if (exit >= 0) meeting = PostDominators(flow.blocks, static_cast<uint32_t>(exit));
  for (uint32_t b = 0; b < flow.blocks.size(); ++b) {
    BasicBlock& block = flow.blocks[b];
    if (instructions[block.end - 1].rejoins_next && block.end < instructions.size()) {
      block.meeting = static_cast<int32_t>(flow.block_of[block.end]);
    } else if (block.successors.size() > 1) {
      block.meeting = meeting[b];
    }
    if (block.meeting >= 0) flow.blocks[block.meeting].is_meeting = true;
  }
  return flow;
}

}  // namespace tally::sim_driver
