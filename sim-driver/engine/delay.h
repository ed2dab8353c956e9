// Delays in front of waits, where the schedule of the launch is drawn from a seed.
#pragma once

#include "sim-driver/engine/warp.h"

namespace tally::sim_driver {

// Call first in an operation that waits. True: the split that runs stays in front of `i`, its warp stays away for some
// turns, and the operation returns at once. So others run ahead as far as they can, and a wait for the wrong phase of a
// barrier finds it twice completed.
inline bool DelaysBefore(Warp& w, const Instruction& i) {
  Schedule& schedule = w.block->cluster->schedule;
  if (schedule.IsNatural()) return false;
  const bool was_here = w.delayed_at == &i || w.polled_at == &i;
  w.delayed_at = w.polled_at = nullptr;
  if (was_here) return false;
  w.delayed_turns = schedule.Delay();
  if (w.delayed_turns == 0) return false;
  w.delayed_at = w.pc = &i;
  w.Stop(StopReason::kYield);
  return true;
}

}  // namespace tally::sim_driver
