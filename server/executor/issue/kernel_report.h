// What an executor knows about one kernel of best-effort programs, for people.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstdint>
#include <string>

#include "scheduler/variant_choice.h"

namespace tally::server {

// What a launch's speed and turnaround depend on besides the kernel.
struct LaunchShape {
  std::array<uint32_t, 3> grid{};
  std::array<uint32_t, 3> block{};
  uint32_t shared_bytes = 0;

  auto operator<=>(const LaunchShape&) const = default;
  uint64_t num_blocks() const { return uint64_t{grid[0]} * grid[1] * grid[2]; }
};

// One shape of one kernel, for people.
struct KernelReport {
  std::string kernel;
  LaunchShape shape;
  uint64_t num_launches = 0;
  std::chrono::nanoseconds gpu_time{0};  // launches times measured duration: an estimate
  scheduler::VariantChoice::Measured chosen;
  std::chrono::nanoseconds original_duration{0};
  std::string remark;  // why there is no variant, or that one is being made; empty: nothing to say
};

}  // namespace tally::server
