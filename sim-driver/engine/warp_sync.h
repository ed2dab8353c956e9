// Instructions that several lanes of a warp execute together, though they may come to them apart.
#pragma once

#include <bit>

#include "sim-driver/engine/barrier.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/operations.h"

namespace tally::sim_driver {

// Runs `body` with w.mask widened to all lanes that came to `i`, or blocks the split until those in `needed` that have
// not exited are there. any_place: they may be at another instruction of the same operation.
template <typename Body>
void WithLanes(Warp& w, const Instruction& i, uint32_t needed, bool any_place, Body body) {
  const auto is_here = [&](const Split& split) {
    if (split.state != SplitState::kWarpSync) return false;
    if (any_place) return split.pc->op == i.op;
    return split.pc == &i && split.frame == w.frame;
  };
  needed &= w.live;
  if ((needed & ~w.mask) == 0) {
    body();
    return;
  }
  uint32_t here = w.mask;
  for (const Split& split : w.splits) {
    if (!is_here(split)) continue;
    here |= split.mask;
    needed |= split.wait_mask & w.live;
  }
  w.CountInstructions();
  if ((needed & ~here) != 0) {
    w.splits[w.current] = {.mask = w.mask,
                           .state = SplitState::kWarpSync,
                           .wait_mask = needed,
                           .pc = &i,
                           .frame = w.frame,
                           .record = w.record};
    w.Stop(StopReason::kBlocked);
    return;
  }
  uint32_t own = w.mask;
  w.mask = here;
  body();
  w.mask = own;
  if (w.stop == StopReason::kFault) return;
  for (Split& split : w.splits) {
    if (!is_here(split)) continue;
    split.state = SplitState::kRunnable;
    ++split.pc;
  }
  // The running split joins those it can be merged with.
  Split& self = w.splits[w.current];
  self = {.mask = w.mask, .pc = w.pc, .frame = w.frame, .record = w.record};
  w.Stop(StopReason::kBlocked);
  MergeSplits(w);
}

// For instructions of whole warps (.sync.aligned of the matrix families): a fault if a lane has exited.
template <typename Body>
void WithWholeWarp(Warp& w, const Instruction& i, Body body) {
  if (w.live != kFullMask)
    return RaiseFault(w, i, kLanes, kFaultLaunchFailed, "needs all 32 threads of the warp, and some have exited");
  WithLanes(w, i, kFullMask, false, body);
}

}  // namespace tally::sim_driver
