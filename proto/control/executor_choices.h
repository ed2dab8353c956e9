// What tallyd chooses for an executor, on its command line, or changes while it runs, by the link
// (executor_link_abi.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "proto/shm/handshake_abi.h"

namespace tally::control {

enum class DriverChoice {
  kAuto,  // the real driver if it opens, initialises and has a device; else the software driver, with one log line
  kCuda,  // only libcuda.so.1
  kSim,   // only libtally-sim-driver.so
};

// In which forms kernels of best-effort tenants may run besides the one they came in.
enum class Transforms {
  kNone,
  kSlices,            // cut into several launches
  kPersistentBlocks,  // persistent blocks that yield
  kGate,              // queues that one store empties
  kAll,
};

// What of a session's entitlement is to be different from now on.
struct ShareChange {
  shm::PriorityClass priority_class = shm::PriorityClass::kDefault;  // kDefault: as it is
  std::optional<uint32_t> weight;
  std::optional<uint32_t> level;
  std::optional<std::chrono::nanoseconds> turnaround;  // zero: the executor's
};

}  // namespace tally::control
