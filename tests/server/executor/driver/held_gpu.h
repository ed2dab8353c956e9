// A driver of which only what holds the GPU is there, and queues that end when the test says so.
//
// One at a time: the driver's functions take no state of ours. Thread-safe, but for Fill and `result`.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "server/executor/driver/driver_table.h"

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
    table.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                              CUstream, void** parameters, void**) {
      released = *static_cast<uint32_t**>(parameters[0]);
      ended = *static_cast<uint32_t**>(parameters[1]);
      ticket = *static_cast<uint32_t*>(parameters[2]);
      each_ns = *static_cast<uint64_t*>(parameters[3]);
      if (result == CUDA_SUCCESS) ++num_launched;
      return result;
    };
    result = CUDA_SUCCESS;
    num_launched = 0;
    released = nullptr;
    ended = nullptr;
    was_released_at_end = false;
  }
  static DriverTable Table() {
    DriverTable table{};
    Fill(table);
    return table;
  }
  // What the last kernel that was launched waits for.
  static bool IsReleased() { return released == nullptr || static_cast<int32_t>(Released() - ticket) >= 0; }
  // Up to what ticket kernels may go.
  static uint32_t Released() { return std::atomic_ref(*released.load()).load(); }
  static void End(uint32_t num_kernels) { std::atomic_ref(*ended.load()).store(num_kernels); }

  static inline CUresult result;  // of loading and of launching
  static inline std::atomic<uint32_t> num_launched;
  static inline std::atomic<uint32_t> ticket;
  static inline std::atomic<uint64_t> each_ns;
  static inline std::atomic<uint32_t*> released, ended;
  static inline bool was_released_at_end;
  static inline std::thread::id ended_by;
};

}  // namespace tally::server
