// tally-switch-test's GPU: a context with one kernel that spins, on two streams, and what is said of how long it took.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "server/executor/driver/driver_table.h"

namespace tally::server {

class SwitchGpu {
 public:
  // Empty: it works; else why not. Ends with the process.
  std::string Open();
  // In another thread than the one that opened it.
  void Enter() { driver_.cuCtxSetCurrent(context_); }
  // On all of the GPU.
  bool Launch(uint64_t duration_ns) {
    return LaunchOn(stream_, static_cast<unsigned>(2 * multiprocessors_), 1024, duration_ns);
  }
  // On all of the GPU, with room beside it.
  bool LaunchHalf(uint64_t duration_ns) {
    return LaunchOn(stream_, static_cast<unsigned>(multiprocessors_), 1024, duration_ns);
  }
  // On another stream. One thread, which is in nobody's way.
  bool LaunchAhead(uint64_t duration_ns) { return LaunchOn(ahead_, 1, 1, duration_ns); }
  bool AwaitAhead() { return driver_.cuStreamSynchronize(ahead_) == CUDA_SUCCESS; }
  bool Await() { return driver_.cuStreamSynchronize(stream_) == CUDA_SUCCESS; }
  bool IsDoneWithin(std::chrono::milliseconds limit);

 private:
  bool LaunchOn(CUstream stream, unsigned num_blocks, unsigned num_threads, uint64_t duration_ns);

  DriverTable driver_{};
  CUcontext context_ = nullptr;
  CUfunction spin_ = nullptr;
  CUstream stream_ = nullptr;
  CUstream ahead_ = nullptr;
  int multiprocessors_ = 1;
};

struct SwitchLatency {
  double p50_us = 0;
  double p99_us = 0;
};
// Zeros of nothing.
SwitchLatency Summary(std::vector<double> us);
void Print(const char* what, const SwitchLatency& latency);

}  // namespace tally::server
