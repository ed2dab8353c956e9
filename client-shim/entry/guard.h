// What surrounds every exported entry point (generated client_entries.cc).
#pragma once

#include <cuda.h>
#include <cxxabi.h>

#include <new>

#include "client-shim/transport/thread_state.h"

namespace tally::client_shim {

// No exception crosses the C ABI. (The thread's cancellation is not an exception of ours: it goes on.)
template <typename Function>
inline CUresult Guarded(Function&& function) {
  try {
    return function();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

// While one is alive, stream 0 of the calling thread means its own per-thread stream.
class PerThreadDefaultStream {
 public:
  PerThreadDefaultStream() : was_(t_thread.is_per_thread) { t_thread.is_per_thread = true; }
  ~PerThreadDefaultStream() { t_thread.is_per_thread = was_; }
  PerThreadDefaultStream(const PerThreadDefaultStream&) = delete;
  PerThreadDefaultStream& operator=(const PerThreadDefaultStream&) = delete;

 private:
  bool was_;
};

}  // namespace tally::client_shim
