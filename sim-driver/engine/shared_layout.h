// Places for .shared variables, such that the variables one kernel can reach do not overlap, and each has one place
// whoever calls the function that uses it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tally::sim_driver {

struct SharedVariable {
  uint64_t size_bytes = 0;
  uint32_t align = 1;
  std::vector<uint32_t> kernels;  // that can reach it
  uint32_t offset_bytes = 0;      // result
};

// Greedy. False if something would not fit into 16 MB.
bool LayOutShared(std::span<SharedVariable> variables);

}  // namespace tally::sim_driver
