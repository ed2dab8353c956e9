// A stream of launches like a rigid-body engine's: steps of layers, a few kernels side by side in each, one behind the
// other in the stream. What they access is what counts here; nothing is executed.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/window/access.h"

namespace tally::scheduler_window {

struct Launch {
  std::vector<scheduler::Access> accesses;
};

enum class Memory : uint8_t {
  kRanges,       // each kernel's result is a range of its own in one allocation
  kTiles,        // results are tiles of one matrix: boxes that interleave in memory
  kFreshRanges,  // ranges again, elsewhere in each step: no two steps use the same boxes for a long time
};

// `num_kernels` to a step, `width` of them in a layer on average (what can run side by side at most). A kernel reads
// one or two results of the layer before and at times one of the layer before that, and updates its own in place. The
// memory of a result is used again after three layers, so all three hazards occur. Same seed, same stream.
std::vector<Launch> RigidBodyLike(uint32_t seed, uint32_t num_steps, uint32_t num_kernels, uint32_t width,
                                  Memory memory);

}  // namespace tally::scheduler_window
