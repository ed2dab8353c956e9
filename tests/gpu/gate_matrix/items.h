// What gate_matrix runs: the kernels of kernels.cu in shapes that make their grids take some hundred microseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu/gate_matrix/gate_queue.h"

namespace tally::gate_matrix {

struct Item {
  std::string name;  // unique; the kernel's if `kernel` is empty
  std::string kernel = {};
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  int us = 0;  // of a block, about
  uint32_t dynamic_shared_bytes = 0;
  uint32_t launched_cluster[3] = {0, 0, 0};
  uint32_t cluster_blocks = 0;         // of a cluster, whoever fixed its size
  uint32_t large_parameter_bytes = 0;  // of one more parameter
  bool uses_parameter_buffer = false;
  bool is_programmatic = false;    // programmatic stream serialization
  uint32_t chain = 1;              // launches one after another, all in one run
  bool is_captured = false;        // as a graph, which is launched again to resume
  bool starts_from_zeros = false;  // else from a pattern
  bool has_standard_parameters = true;
  uint32_t elements = 0;  // of `out`; 0: one for each thread

  const std::string& kernel_name() const { return kernel.empty() ? name : kernel; }
  uint32_t num_blocks() const { return grid[0] * grid[1] * grid[2]; }
  uint32_t num_threads() const { return block[0] * block[1] * block[2]; }
  uint32_t num_elements() const { return elements != 0 ? elements : num_blocks() * num_threads(); }
};

const std::vector<Item>& Items();

}  // namespace tally::gate_matrix
