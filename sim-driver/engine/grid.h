// Grid: one launch while it is on the machine. What the machine schedules by is guarded by its mutex; the rest is
// constant while blocks run.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "sim-driver/engine/heap.h"
#include "sim-driver/engine/machine.h"
#include "sim-driver/engine/warp.h"

namespace tally::sim_driver {

class Grid {
 public:
  Grid(LaunchRequest request, uint64_t grid_id, std::shared_ptr<Heap> device_heap,
       const MachineOptions& machine_options);

  const LaunchRequest request;
  const uint64_t id;
  const MachineOptions& options;
  const ProgramCode& code;
  const Kernel& kernel;
  const FunctionCode& function;
  const std::shared_ptr<Heap> heap;
  const Dim3 cluster_shape;
  const uint32_t blocks_per_cluster;
  const uint32_t threads_per_block;
  const uint32_t warps_per_block;
  const uint64_t num_clusters;
  const uint32_t shared_bytes;  // per block, static and dynamic
  const uint32_t local_stride_bytes;
  const std::vector<std::byte> parameters;  // padded to kernel.parameter_bytes + 16
  // What %envreg1 and %envreg2 point to: the barrier of cooperative grids. 64-byte aligned, zero at the start.
  struct alignas(64) Workspace {
    std::byte bytes[256] = {};
  };
  std::unique_ptr<Workspace> workspace;

  std::mutex printf_mutex;
  std::atomic<bool> is_stopping{false};  // faulted or cancelled: blocks end where they are
  std::atomic<uint64_t> next_cluster{0};
  std::atomic<uint32_t> num_suspended{0};  // suspended.size(), to be looked at without the lock

  // Guarded by the machine's mutex.
  std::deque<std::unique_ptr<Cluster>> suspended;  // resident, waiting for a worker
  uint64_t resident = 0;                           // clusters started and not finished
  uint64_t max_resident = 1;
  uint64_t resumed_since_start = 0;  // so that new clusters get their turn beside suspended ones
  uint64_t last_served = 0;          // when, in picks of the machine
  std::optional<Fault> fault;
  Machine::OnDone on_done;
};

}  // namespace tally::sim_driver
