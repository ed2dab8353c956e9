// Runs clusters: warps in turn, each split for a slice of instructions.
#pragma once

#include "sim-driver/engine/warp.h"

namespace tally::sim_driver {

class MemoryView;

enum class ClusterOutcome : uint8_t {
  kFinished,
  kSlice,     // used up its slice
  kPolling,   // all that run only look again and again for something to change
  kSleeping,  // nobody in it wants to run before Cluster::wake_ns
  kFaulted,   // Cluster::fault
  kStopped,   // the grid is stopping
};

// Makes `cluster` ready to execute cluster `index` of `grid`, reusing its memory.
void StartCluster(Cluster& cluster, Grid& grid, uint64_t index, uint32_t virtual_sm);
// Runs it for about `slice` warp instructions. Adds to the counters.
ClusterOutcome RunCluster(Cluster& cluster, MemoryView& memory, int64_t slice, uint64_t* thread_instructions);

// One instruction of the split that is `w.current`, which may run.
void StepWarp(Warp& w);
// Do lanes of the warp wait for others to join them? They go on alone after a while.
bool HasWaitingLanes(const Warp& w);

uint64_t NowNs();

}  // namespace tally::sim_driver
