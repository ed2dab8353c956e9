// A driver of which only what holds the GPU is there, and queues that end when the test says so.
//
// One at a time: the driver's functions take no state of ours. Thread-safe, but for Fill and `result`.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "server/executor/driver/driver_table.h"
#include "server/executor/driver/holding_kernels.h"

namespace tally::server {

struct HeldGpu {
  // Into a table; forgets what was.
  static void Fill(DriverTable& table) {
    table.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
      return *stream = reinterpret_cast<CUstream>(1), CUDA_SUCCESS;
    };
    table.cuMemHostAlloc = [](void** memory, size_t bytes, unsigned) {
      return *memory = std::aligned_alloc(128, (bytes + 127) / 128 * 128), CUDA_SUCCESS;
    };
    table.cuMemFreeHost = [](void* memory) { return std::free(memory), CUDA_SUCCESS; };
    table.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* address, void* memory, unsigned) {
      return *address = reinterpret_cast<CUdeviceptr>(memory), CUDA_SUCCESS;
    };
    table.cuModuleLoadData = [](CUmodule* module, const void*) {
      return *module = reinterpret_cast<CUmodule>(1), result;
    };
    table.cuModuleUnload = [](CUmodule) { return CUDA_SUCCESS; };
    table.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char*) {
      return *function = reinterpret_cast<CUfunction>(1), CUDA_SUCCESS;
    };
    table.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
    table.cuStreamSynchronize = [](CUstream) {
      was_released_at_end = IsReleased();
      ended_by = std::this_thread::get_id();
      return CUDA_SUCCESS;
    };
    table.cuGetErrorName = [](CUresult, const char** name) { return *name = "an error", CUDA_SUCCESS; };
    table.cuGraphCreate = [](CUgraph* graph, unsigned) { return *graph = reinterpret_cast<CUgraph>(1), CUDA_SUCCESS; };
    table.cuGraphDestroy = [](CUgraph) { return CUDA_SUCCESS; };
    table.cuGraphAddKernelNode_v2 = [](CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                                       const CUDA_KERNEL_NODE_PARAMS* kernel) {
      released = *static_cast<uint32_t**>(kernel->kernelParams[0]);
      ended = *static_cast<uint32_t**>(kernel->kernelParams[1]);
      orders = *static_cast<HoldingKernels::Order**>(kernel->kernelParams[2]);
      return CUDA_SUCCESS;
    };
    table.cuGraphInstantiateWithFlags = [](CUgraphExec* graph, CUgraph, unsigned long long) {
      return *graph = reinterpret_cast<CUgraphExec>(1), CUDA_SUCCESS;
    };
    table.cuGraphExecDestroy = [](CUgraphExec) { return CUDA_SUCCESS; };
    table.cuGraphLaunch = [](CUgraphExec, CUstream) {
      if (result != CUDA_SUCCESS) return result;
      const HoldingKernels::Order& order = orders.load()[num_launched % HoldingKernels::kNumOrders];
      ticket = order.ticket;
      each_ns = order.each_ns;
      ++num_launched;
      return CUDA_SUCCESS;
    };
    result = CUDA_SUCCESS;
    num_launched = 0;
    released = nullptr;
    ended = nullptr;
    ticket = 0;
    was_released_at_end = false;
  }
  static DriverTable Table() {
    DriverTable table{};
    Fill(table);
    return table;
  }
  // What the last kernel that was launched waits for.
  static bool IsReleased() { return num_launched == 0 || static_cast<int32_t>(Released() - ticket) >= 0; }
  // Up to what ticket kernels may go.
  static uint32_t Released() { return std::atomic_ref(*released.load()).load(); }
  static void End(uint32_t num_kernels) { std::atomic_ref(*ended.load()).store(num_kernels); }

  static inline CUresult result;  // of loading and of launching
  static inline std::atomic<uint32_t> num_launched;
  static inline std::atomic<uint32_t> ticket;
  static inline std::atomic<uint64_t> each_ns;
  static inline std::atomic<uint32_t*> released, ended;
  static inline std::atomic<HoldingKernels::Order*> orders;
  static inline bool was_released_at_end;
  static inline std::thread::id ended_by;
};

}  // namespace tally::server
