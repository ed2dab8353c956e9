// Loops that wait for what another block writes: grid barriers, decoupled look-back, locks. Blocks of such kernels must
// be there at the same time, or at least come in order, so they are not cut into parts.
#pragma once

#include <optional>
#include <string>

#include "ptx-transforms/analysis/control_flow.h"

namespace tally::ptx_transforms {

struct SpinLoop {
  SourcePosition position;  // of the access that decides
  std::string what;         // "ld.acquire.gpu.global.u32"
};

enum class WaitsFor : uint8_t {
  kOtherBlocks,   // accesses to shared memory do not count
  kOtherThreads,  // they do
};

// The first loop whose end depends on
//   * a volatile, relaxed or acquire load, or on an atomic operation that would do the same in every iteration (exch;
//     cas, or, and, ... of unchanging values; add of 0), of global or generic memory (see WaitsFor);
//   * a plain load of such memory, if nothing else changes from one iteration to the next;
//   * the result of a function.
// Not found, because they make progress by themselves: work queues (atom.add of a step), retries of cas on the value
// last seen. Errs on the side of finding one; also finds one in flow that cannot be analysed if it holds such accesses.
std::optional<SpinLoop> FindSpinLoop(const ControlFlow& flow, WaitsFor waits_for = WaitsFor::kOtherBlocks);

}  // namespace tally::ptx_transforms
