// Runs a graph whose steps have been given their GPUs, from the host: a step starts when those that it comes after have
// ended, wherever they ran.
//
// Of the steps that may start on a GPU the first in the list goes first, and no more at a time than keep that GPU busy:
// so what the end waits for most is not behind what others had ready sooner. (Whoever was ready first going first took
// up to a quarter longer, in a model of LU and Cholesky on 2 and 4 GPUs.)
//
// Which task runs where and which bytes are copied when is decided elsewhere (scheduler/taskgraph). Here only the order
// is kept: that of `after`, nothing else, so steps that forget an edge compute something else on some day.
#pragma once

#include <cuda.h>

#include <chrono>
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

// Since the begin of the run, as the thread that runs it saw it.
struct StepTimes {
  std::chrono::nanoseconds begin{0};
  std::chrono::nanoseconds end{0};  // zero: it did not end well, or was not started
};

// The queue of GPU n is queues[n]. The steps have been checked. Returns when all have ended; or with the first error,
// when those that had been started on queues that are well have ended: then nothing more was started. `look`, now and
// then: an error stops the run likewise. `times`: of each step, if wanted.
CUresult RunSteps(
    std::span<const PlacedStep> steps, std::span<StepQueue* const> queues,
    const std::function<CUresult()>& look = [] { return CUDA_SUCCESS; }, std::vector<StepTimes>* times = nullptr);

// Bytes that the copies among the steps move.
uint64_t CopiedBytes(std::span<const PlacedStep> steps);

}  // namespace tally::server
