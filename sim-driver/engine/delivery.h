// How asynchronous copies arrive in shared memory: at once, or, where the schedule of the launch is drawn from a seed,
// some turns later, so that who does not wait for one reads what was there before.
#pragma once

#include <span>

#include "sim-driver/engine/warp.h"

namespace tally::sim_driver {

// Where a copy of one lane goes. Shared addresses.
struct Destination {
  uint64_t to = 0;
  uint64_t barrier = 0;  // an mbarrier that learns of the bytes
  uint32_t alignment = 16;
  bool is_multicast = false;  // to the same places of each block of the cluster whose bit `blocks` has
  uint32_t blocks = 0;
};
// False after a fault.
bool Deliver(Warp& w, const Instruction& i, uint32_t lane, const Destination& destination,
             std::span<const std::byte> bytes);
// One of those that are under way arrives. False: there are none.
bool DeliverOne(Cluster& cluster);

}  // namespace tally::sim_driver
