// One launch of a best-effort kernel that may take another form, and what every step of it works on.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <span>
#include <vector>

#include "server/executor/issue/variant_registry.h"
#include "server/executor/session/client_context.h"
#include "server/executor/session/launch_parameters.h"
#include "server/executor/session/served_request.h"

namespace tally::server {

// References only, for the time of one launch: valid while the lane holds its session's turn.
struct VaryingLaunch {
  VaryingLaunch(ServedRequest& served_in, Stream& stream_in, LaunchParameters& request_in,
                const VariantDevice& device_in, KernelOnDevice& kernel_in)
      : served(served_in),
        stream(stream_in),
        request(request_in),
        registry(*served_in.session().core.variants),
        device(device_in),
        kernel(kernel_in) {
    const shm::Launch& launch = request.launch();
    std::copy(std::begin(launch.grid), std::end(launch.grid), shape.grid.begin());
    std::copy(std::begin(launch.block), std::end(launch.block), shape.block.begin());
    shape.shared_bytes = launch.shared_bytes;
  }

  int num_threads() const { return static_cast<int>(shape.block[0] * shape.block[1] * shape.block[2]); }

  // Within what time it should give the GPU back: as its program wants it, or everybody.
  std::chrono::nanoseconds threshold() const {
    const std::chrono::nanoseconds own(served.session().turnaround_ns.load(std::memory_order_relaxed));
    return own.count() != 0 ? own : registry.threshold();
  }

  // The program's parameters with room for ours behind them.
  std::vector<std::byte> Parameters(size_t hidden_offset, size_t hidden_bytes) const {
    const std::span<const std::byte> own = request.parameter_block().first(request.kernel().parameter_bytes);
    std::vector<std::byte> parameters(hidden_offset + hidden_bytes);
    std::copy(own.begin(), own.end(), parameters.begin());
    return parameters;
  }

  ServedRequest& served;
  Stream& stream;
  LaunchParameters& request;
  VariantRegistry& registry;
  const VariantDevice& device;
  KernelOnDevice& kernel;
  LaunchShape shape;
};

}  // namespace tally::server
