// A task of a graph as its program declares it (include/tally/taskgraph.h).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "proto/shm/records_launch_abi.h"

namespace tally::server {

struct DeclaredTask {
  std::vector<CUgraphNode> nodes;
  // The first `num_reads` are read, `num_writes` then written, the others scratch. Nobody has looked at them.
  std::vector<shm::DeclaredBox> boxes;
  uint32_t num_reads = 0;
  uint32_t num_writes = 0;
};

}  // namespace tally::server
