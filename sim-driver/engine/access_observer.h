// AccessObserver: a MemoryLookup that is told of every access. For tests that ask what a kernel touches.
#pragma once

#include "sim-driver/engine/machine.h"

namespace tally::sim_driver {

class AccessObserver : public MemoryLookup {
 public:
  // Of one lane, to memory that is neither the thread's nor the block's own, before it is made; an atomic one is a
  // write. From the machine's threads. Workers then remember no allocation, so each access comes by: everything is
  // slower.
  virtual void OnAccess(uint64_t address, uint32_t bytes, bool is_write) const = 0;
};

}  // namespace tally::sim_driver
