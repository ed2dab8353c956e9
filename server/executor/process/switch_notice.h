// What is left of a switch from best-effort work that is brought about some time before a kernel comes; and what a
// kernel on a second stream waits for.
#pragma once

#include "server/executor/process/switch_gpu.h"

namespace tally::server {

// `commands` and `answers`: of the best-effort process (switch_partner.h), which works with short slices.
void PrintNotices(SwitchGpu& gpu, int commands, int answers);
// Kernels of a burst but the first, a moment after one another. `num_staying`: kernels of one thread that queue on
// another stream and stay on the GPU meanwhile, one after another.
SwitchLatency MeasureBursts(SwitchGpu& gpu, int num_staying);
// A kernel that comes while one of the same process runs and runs on for 300 us, with room beside it: on another stream
// or behind it on the same.
SwitchLatency MeasureBesideOneThatRuns(SwitchGpu& gpu, bool is_same_stream);

}  // namespace tally::server
