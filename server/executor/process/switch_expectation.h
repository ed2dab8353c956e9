// What is left of a switch from best-effort work if all that is known is that a kernel comes within some time.
#pragma once

#include "server/executor/process/switch_gpu.h"

namespace tally::server {

// Beside a best-effort process that works with short slices (switch_partner.h).
void PrintExpectations(SwitchGpu& gpu);

}  // namespace tally::server
