// What surrounds every exported entry point (generated client_entries.cc).
#pragma once

#include <cuda.h>
#include <cxxabi.h>

#include <cstdint>
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

// A call that Tally does not offer (verdict `refused`), by its row in the table: CUDA_ERROR_NOT_SUPPORTED, one line in
// the log the first time; the executor counts all of them. Needs no initialisation, as many programs probe before
// cuInit.
CUresult Refuse(uint32_t symbol_index);
// The same for a use of a call that is offered otherwise: `what` is a literal, "cuX: why" with a row's name. Logged
// once per literal.
CUresult RefuseUse(const char* what);

}  // namespace tally::client_shim
