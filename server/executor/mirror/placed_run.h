// Runs a graph whose steps have been given their GPUs, from the host: a step starts when those that it comes after have
// ended, wherever they ran.
//
// Which task runs where and which bytes are copied when is decided elsewhere (scheduler/taskgraph). Here only the order
// is kept: that of `after`, nothing else, so steps that forget an edge compute something else on some day.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "server/executor/mirror/step_queue.h"

namespace tally::server {

// kInvalidArgument names what is wrong: a GPU without a queue, an edge that does not lead backwards, a command that
// makes no sense (CheckCommand) or none of those that PlacedStep allows.
Status CheckSteps(std::span<const PlacedStep> steps, size_t num_queues);

// The queue of GPU n is queues[n]. The steps have been checked. Returns when all have ended; or with the first error,
// when those that had been started on queues that are well have ended: then nothing more was started. `look`, now and
// then: an error stops the run likewise.
CUresult RunSteps(
    std::span<const PlacedStep> steps, std::span<StepQueue* const> queues,
    const std::function<CUresult()>& look = [] { return CUDA_SUCCESS; });

// Bytes that the copies among the steps move.
uint64_t CopiedBytes(std::span<const PlacedStep> steps);

}  // namespace tally::server
