// The shape of a launch: launches of one kernel and one shape take about the same time.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

namespace tally::server {

// What a launch's speed and turnaround depend on besides the kernel.
struct LaunchShape {
  std::array<uint32_t, 3> grid{};
  std::array<uint32_t, 3> block{};
  uint32_t shared_bytes = 0;

  auto operator<=>(const LaunchShape&) const = default;
  uint64_t num_blocks() const { return uint64_t{grid[0]} * grid[1] * grid[2]; }
};

}  // namespace tally::server
