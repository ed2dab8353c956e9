// Puts a pending launch on its stream: as the program wrote it or, for best-effort tenants, in the form that the
// kernel's profile says (kernel_profile.h). Passes admission by itself.
#pragma once

#include <cuda.h>

#include "server/executor/issue/launch_owner.h"
#include "server/executor/issue/pending_launch.h"

namespace tally::server {

// Whether anybody cares how the GPU could be taken from what is launched now: it is best-effort work, and goes there.
bool IsOfInterest(const LaunchOwner& owner, bool is_captured);

// Its context is current, its owner holds the sequencer. The launch is spent: a queue may have taken it.
CUresult IssueLaunch(PendingLaunch& launch);

}  // namespace tally::server
