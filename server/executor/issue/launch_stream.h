// A stream as launches know it: the driver's, and the queue of its gated launches.
#pragma once

#include <cuda.h>

#include <memory>

#include "server/executor/issue/gated_queues.h"

namespace tally::server {

// Guarded by its session's sequencer.
struct LaunchStream {
  CUstream real = nullptr;
  int device = 0;                              // ordinal
  std::unique_ptr<GatedQueues::Stream> gated;  // none before the first launch with a gate

  // To be called before anything but a gated launch is put on the real stream, which must not overtake those
  // (gated_queue.h). The real context must be current.
  CUresult Seal() { return gated != nullptr ? gated->Seal() : CUDA_SUCCESS; }
};

}  // namespace tally::server
