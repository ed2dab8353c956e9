// What gates cost when nobody stops them, and how soon the GPU is free when somebody does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu/gate_matrix/matrix.h"

namespace tally::gate_matrix {

// Medians of graph launches of a chain of launches of one kernel; microseconds for each launch, on the GPU's clock.
struct CostResult {
  std::string name;
  double original_us = 0;
  double off_us = 0;          // gated, with a record of 0
  double committed_us = 0;    // the watermark is above all blocks
  double fresh_us = 0;        // the blocks raise the watermark: as launched the first time, chunk 4096
  double fresh_large_us = 0;  // chunk 16384
};
std::vector<CostResult> MeasureCosts(const Streams& streams, CUmodule original, CUmodule gated);

// From before the host raises the flag until it sees the stream idle.
struct StopResult {
  std::string name;
  uint32_t chunk = 0;
  uint32_t num_runs = 0;
  double p50_us = 0;
  double p99_us = 0;
  double max_us = 0;
  uint32_t median_left = 0;  // blocks that had not run
};
std::vector<StopResult> MeasureStops(const Streams& streams, CUmodule gated);

}  // namespace tally::gate_matrix
