// CUlaunchConfig of a launch, whatever record it comes from.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>

namespace tally::server {

// `attributes` must outlive the launch call.
template <typename Grid, typename Block>
CUlaunchConfig LaunchConfig(const Grid& grid, const Block& block, uint32_t shared_bytes, CUstream stream,
                            std::span<CUlaunchAttribute> attributes) {
  CUlaunchConfig config{};
  config.gridDimX = grid[0];
  config.gridDimY = grid[1];
  config.gridDimZ = grid[2];
  config.blockDimX = block[0];
  config.blockDimY = block[1];
  config.blockDimZ = block[2];
  config.sharedMemBytes = shared_bytes;
  config.hStream = stream;
  config.attrs = attributes.empty() ? nullptr : attributes.data();
  config.numAttrs = static_cast<unsigned int>(attributes.size());
  return config;
}

}  // namespace tally::server
