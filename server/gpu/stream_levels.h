// Which priorities streams have on the GPU, as CUDA counts: 0 is the lowest, -5 the highest on today's GPUs. What is
// out of a driver's range it cuts.
//
// A context has few channels for its streams (CUDA_DEVICE_MAX_CONNECTIONS), and streams that share one wait for one
// another: behind a stream that waits for a value or an event, the others wait, too. A stream that lets others go on
// must never be one of those. Streams of different priorities do not share channels, so these have priorities of their
// own, and programs get the rest.
#pragma once

#include <algorithm>

namespace tally::server {

inline constexpr int kSignalPriority = -5;  // stores of flags and records
inline constexpr int kResumePriority = -1;  // what was stopped goes on here
inline constexpr int kHighestPriorityOfPrograms = -4;

// Of a program's stream, by the priority that it asked for.
constexpr int ProgramPriority(int asked) {
  return asked >= 0 ? 0 : std::max(asked + kResumePriority, kHighestPriorityOfPrograms);
}

}  // namespace tally::server
