#include "sim-driver/engine/grid.h"

#include <algorithm>

namespace tally::sim_driver {
namespace {

std::vector<std::byte> PaddedParameters(const LaunchRequest& request, uint32_t bytes) {
  std::vector<std::byte> padded(bytes + 16);
  std::copy_n(request.parameters.begin(), std::min<size_t>(request.parameters.size(), bytes), padded.begin());
  return padded;
}

uint32_t LocalStride(const LaunchRequest& request) {
  const ProgramCode& code = request.program->code();
  uint64_t bytes = uint64_t{code.kernels[request.kernel_index].local_bytes_per_thread} + 32;
  if (code.kernel_needs_stack[request.kernel_index]) bytes += std::max(request.stack_bytes, kMinStackBytes);
  return static_cast<uint32_t>((std::min<uint64_t>(bytes, 64u << 20) + 15) / 16 * 16);
}

}  // namespace

Grid::Grid(LaunchRequest launch, uint64_t grid_id, std::shared_ptr<Heap> device_heap,
           const MachineOptions& machine_options)
    : request(std::move(launch)),
      id(grid_id),
      options(machine_options),
      code(request.program->code()),
      kernel(code.kernels[request.kernel_index]),
      function(*code.functions[code.kernel_functions[request.kernel_index]]),
      heap(std::move(device_heap)),
      cluster_shape(request.cluster),
      blocks_per_cluster(static_cast<uint32_t>(request.cluster.Count())),
      threads_per_block(static_cast<uint32_t>(request.block.Count())),
      warps_per_block((threads_per_block + kLanes - 1) / kLanes),
      num_clusters(request.grid.Count() / blocks_per_cluster),
      shared_bytes(kernel.dynamic_shared_offset_bytes + request.dynamic_shared_bytes),
      local_stride_bytes(LocalStride(request)),
      parameters(PaddedParameters(request, kernel.parameter_bytes)) {
  if (request.is_cooperative) workspace = std::make_unique<Workspace>();
  // As many blocks as the reported device would hold at once.
  uint64_t per_sm =
      std::min<uint64_t>(MachineLimits::kMaxBlocksPerSm, MachineLimits::kMaxThreadsPerSm / threads_per_block);
  uint64_t shared = uint64_t{shared_bytes} + MachineLimits::kReservedSharedBytesPerBlock;
  per_sm = std::max<uint64_t>(1, std::min<uint64_t>(per_sm, MachineLimits::kSharedBytesPerSm / shared));
  max_resident = std::max<uint64_t>(1, per_sm * MachineLimits::kNumSms / blocks_per_cluster);
  if (request.is_cooperative) max_resident = num_clusters;
}

}  // namespace tally::sim_driver
