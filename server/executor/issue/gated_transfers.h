// Fills and copies within a device's memory as launches with a gate.
//
// Why: what has no gate must not overtake what a queue was stopped before, so the queue must be empty first or the
// stream wait (gated_queue.h). Frameworks put a fill in front of every few kernels: the counters of a reduction, the
// sums of a product. In an executor that also runs high-priority programs each such fill cost the GPU a pause: a
// training of GPT-2 small lost 12 % of its speed (docs/results/gates.md).
//
// Immutable once loaded; from any thread then.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

#include "server/executor/driver/driver_table.h"
#include "server/executor/issue/gated_module.h"
#include "server/executor/issue/pending_launch.h"
#include "server/executor/issue/transfer.h"

namespace tally::server {

struct GatedForm;

class GatedTransfers {
 public:
  // Beyond this the driver's own way is quicker, and a pause in front of it next to nothing.
  static constexpr uint64_t kMostBytes = uint64_t{64} << 20;

  explicit GatedTransfers(const DriverTable& driver) : module_(driver) {}

  // The context must be current, here and at the end. After an error none is taken.
  CUresult Load();
  // Of one row, that long, aligned to its elements.
  bool Takes(const Transfer& transfer) const;
  // Of one that it takes. Kernels of this device must reach its memory.
  PendingLaunch LaunchOf(const Transfer& transfer, GatedForm* form) const;

 private:
  GatedModule module_;
  GatedModule::Kernel fill_, copy_;
};

}  // namespace tally::server
