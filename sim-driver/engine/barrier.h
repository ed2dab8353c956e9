// What changes for waiting threads when others arrive, exit or wake, and what they wait for.
#pragma once

#include "sim-driver/engine/warp.h"

namespace tally::sim_driver {

// Threads of the block exited: barriers without a count expect fewer now.
void OnThreadsExited(Block& block);
// Lets go splits of the warp whose shfl.sync, vote.sync, ... has everybody it waits for.
void WakeWarpSync(Warp& w);
// Makes one split of those that are at the same place for the same reason.
void MergeSplits(Warp& w);
// "thread (3,0,0) at PTX line 12 'bar.sync 0'; ...": where the threads of a cluster are that cannot go on.
std::string DescribeWaiting(const Cluster& cluster);
// Of a warp that waits for registers: " (a thread of it has ...)".
std::string DescribeRegisters(const Warp& w);

}  // namespace tally::sim_driver
