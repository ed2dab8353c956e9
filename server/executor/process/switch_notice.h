// What is left of a switch from best-effort work that is brought about some time before a kernel comes; and what a
// kernel on a second stream waits for.
#pragma once

#include "server/executor/process/switch_gpu.h"

namespace tally::server {

// `commands` and `answers`: of the best-effort process (switch_partner.h), which works with short slices.
void PrintNotices(SwitchGpu& gpu, int commands, int answers);
// A kernel on a second stream, while one of the same process runs on the first, with room beside it.
SwitchLatency MeasureSecondStream(SwitchGpu& gpu);

}  // namespace tally::server
