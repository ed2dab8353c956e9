// Basic blocks of a lowered function, and where lanes that part at a branch should come together again.
#pragma once

#include <cstdint>
#include <vector>

#include "sim-driver/engine/lowering.h"

namespace tally::sim_driver {

struct BasicBlock {
  uint32_t begin = 0;  // instructions [begin, end)
  uint32_t end = 0;
  std::vector<uint32_t> successors{};
  std::vector<uint32_t> predecessors{};
  int32_t meeting = -1;     // block where lanes that part at its end meet; -1: nowhere
  bool is_meeting = false;  // some block's `meeting`
};

struct ControlFlow {
  std::vector<BasicBlock> blocks;
  std::vector<uint32_t> block_of;  // per instruction
};

// Meeting points are immediate post-dominators among the paths to the last return: paths that end in another exit do
// not count, because lanes that leave take themselves off every record.
ControlFlow AnalyseControlFlow(const Lowering& lowering);

}  // namespace tally::sim_driver
