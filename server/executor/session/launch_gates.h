// Whether a launch can go into a queue that may be stopped (server/executor/issue/gated_queue.h), and with which code.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "server/executor/session/varying_launch.h"

namespace tally::server {

// The code of a kernel that has a gate.
struct GatedFunction {
  CUfunction function = nullptr;
  KernelGate gate;
};

// Its own, or that of a variant beside it. Nothing: there is none, or not yet. `variants` may be null.
std::optional<GatedFunction> FindGate(const VaryingLaunch& launch, VariantModule* variants);

// Whether the launch asks for nothing that a queue cannot give.
bool FitsGate(const VaryingLaunch& launch, const GatedFunction& code);

// The launch as its queue takes it.
GatedLaunch MakeGatedLaunch(const VaryingLaunch& launch, const GatedFunction& code, uint32_t chunk);

// How many blocks a queue promises to the launch ahead of those that have begun. `duration`: of the launch as it is;
// zero: not known.
uint32_t ChunkFor(const VaryingLaunch& launch, const GatedFunction& code, std::chrono::nanoseconds duration);

// About how long runs on, of a launch that takes so long, what has begun or was promised when its queue is stopped.
std::chrono::nanoseconds PieceOf(const VaryingLaunch& launch, const GatedFunction& code, uint32_t chunk,
                                 std::chrono::nanoseconds duration);

}  // namespace tally::server
