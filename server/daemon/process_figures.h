// What a process takes of its machine, under the names that Prometheus has for it (process_*). Of /proc: what cannot be
// read is 0.
#pragma once

#include <cstdint>

namespace tally::server {

struct ProcessFigures {
  double cpu_seconds = 0;         // user and system
  double start_time_seconds = 0;  // of the epoch
  uint64_t virtual_memory_bytes = 0;
  uint64_t resident_memory_bytes = 0;
  uint64_t num_open_fds = 0;
  uint64_t most_fds = 0;
};

ProcessFigures FiguresOfThisProcess();

}  // namespace tally::server
