// Runs the program's host functions and stream callbacks. One thread, started by the first of them, with a channel of
// its own: the executor tells it which token's turn has come, and lets the stream go on when the function has returned.
//
// All signals are blocked in the thread. It is never joined: it waits in the kernel when the process ends.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

namespace tally::client_shim {

// What a token stands for. Objects live as long as the process: a graph may run one any number of times.
struct Callback {
  CUhostFn function = nullptr;                 // cuLaunchHostFunc, host nodes
  CUstreamCallback stream_callback = nullptr;  // cuStreamAddCallback
  CUstream stream = nullptr;
  void* user = nullptr;
  // The shim's own work (pageable bytes of graphs): copied instead of called when size_bytes is not 0.
  void* destination = nullptr;
  const void* source = nullptr;
  uint64_t size_bytes = 0;
  bool runs_once = false;
};

class CallbackThread {
 public:
  // Starts the thread, with its channel, if it does not run yet.
  CUresult Ensure();

 private:
  static void* Run(void* channel);
  std::mutex mutex_;
  bool is_running_ = false;
};

// The executor's name for a callback, and back.
inline uint64_t TokenOf(const Callback* callback) { return reinterpret_cast<uint64_t>(callback); }
inline const Callback* CallbackOf(uint64_t token) { return reinterpret_cast<const Callback*>(token); }

}  // namespace tally::client_shim
