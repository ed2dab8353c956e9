// A stream as launches know it: the driver's, the queue of its gated launches, and what is counted of its work.
#pragma once

#include <cuda.h>

#include <memory>

#include "server/executor/dispatch/busy_clock.h"
#include "server/executor/issue/gated_queues.h"

namespace tally::server {

// Guarded by its session's sequencer.
struct LaunchStream {
  CUstream real = nullptr;
  int device = 0;                              // ordinal
  std::unique_ptr<GatedQueues::Stream> gated;  // none before the first launch with a gate
  std::shared_ptr<StreamWork> work;            // null: nobody counts

  // To be called before anything but a gated launch is put on the real stream, which must not overtake those
  // (gated_queue.h). The real context must be current.
  CUresult Seal() { return gated != nullptr ? gated->Seal() : CUDA_SUCCESS; }
  // Work of the program is about to be handed to the driver, and is no node of a graph that is being captured.
  void NoteBusy() const {
    if (work != nullptr) work->clock().OnWork(work);
  }
};

}  // namespace tally::server
