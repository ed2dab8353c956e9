// Notices that the threads of a cluster wait for ever at mbarriers.
#pragma once

#include "sim-driver/engine/warp.h"

namespace tally::sim_driver {

// Do all threads wait, at barriers or in loops that do nothing but look at an mbarrier, while no copy is under way?
// Then nothing can arrive any more, whatever other blocks and the host do. May execute some instructions of the
// cluster: ask now and then. What it says is certain; a loop that counts its turns or looks at other memory is none of
// these.
bool WaitsForEver(Cluster& cluster);

}  // namespace tally::sim_driver
