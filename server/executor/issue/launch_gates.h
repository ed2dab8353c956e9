// Whether a launch can go into a queue that may be stopped (gated_queue.h), and with which code.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstdint>
#include <optional>

#include "server/executor/issue/gated_code.h"
#include "server/executor/issue/gated_queue.h"
#include "server/executor/issue/pending_launch.h"
#include "server/executor/issue/variant_module.h"

namespace tally::server {

// Of launches here the kernel on the device is known (PendingLaunch::here).

// The code of a kernel that has a gate.
struct GatedFunction {
  CUfunction function = nullptr;
  KernelGate gate;
  // The grid is made so many times as large in x. A kernel that takes any (device::kAnyGrid) often has one block a
  // multiprocessor, each of which runs as long as the launch: only between blocks it can be stopped.
  uint32_t finer = 1;
};

// Its own, or that of a variant beside it. Nothing: there is none, or not yet. `variants` may be null. `duration`: of
// the launch as it is; zero: not known.
std::optional<GatedFunction> FindGate(const PendingLaunch& launch, VariantModule* variants,
                                      std::chrono::nanoseconds duration);

// Whether the launch asks for nothing that a queue cannot give.
bool FitsGate(const PendingLaunch& launch, const GatedFunction& code);

// How its queue runs it.
GatedForm FormOf(const PendingLaunch& launch, const GatedFunction& code, uint32_t chunk);

// How many blocks a queue promises to the launch ahead of those that have begun. `duration`: of the launch as it is;
// zero: not known.
uint32_t ChunkFor(const PendingLaunch& launch, const GatedFunction& code, std::chrono::nanoseconds duration);

// About how long runs on, of a launch that takes so long, what has begun or was promised when its queue is stopped.
std::chrono::nanoseconds PieceOf(const PendingLaunch& launch, const GatedFunction& code, uint32_t chunk,
                                 std::chrono::nanoseconds duration);

}  // namespace tally::server
