// Has the GPU look again at the channels of a context that go on after having been suspended.
//
// The GPU turns to a channel when its doorbell is rung, and libcuda rings it with whatever it puts there. One that was
// suspended while it ran is left alone when it may go on, whatever it still has to do, until somebody rings or the GPU
// turns to another context and back: on an H200 with nobody else on it 33 suspensions of 40 ended so, and none of 120
// when something was put on any stream of the context meanwhile (docs/results/2026-11-23-h200-alone.md). Drivers that
// enable channels by themselves ring, too: gv11b_tsg_enable of nvgpu, tu102_chan_start of nouveau.
//
// Rings from a thread of its own: the driver may have its locks held by somebody who waits for what is suspended.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "server/gpu/driver_table.h"

namespace tally::server {

class GpuDoorbell {
 public:
  // Both outlive it.
  GpuDoorbell(const DriverTable& driver, CUcontext context);
  ~GpuDoorbell();
  GpuDoorbell(const GpuDoorbell&) = delete;
  GpuDoorbell& operator=(const GpuDoorbell&) = delete;

  // While the context is suspended, just before it goes on. Returns when that is done, or has taken so long (2 ms) that
  // going on matters more. One thread at a time.
  void Ring();

 private:
  void Run();
  // A stream and a word in pinned memory to write to; whether there are.
  bool Make();

  const DriverTable& driver_;
  const CUcontext context_;
  CUstream stream_ = nullptr;  // the thread's, as the next
  CUdeviceptr word_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t num_wanted_ = 0;  // guarded by mutex_, as below
  uint32_t num_rung_ = 0;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace tally::server
