// What cuGetProcAddress answers: for a name, the newest ABI that the caller's CUDA version knew.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string_view>

namespace tally::client_shim {

struct ProcRow {
  const char* name;
  int version;  // CUDA version in which this ABI appeared
  bool is_per_thread;
};

struct ProcAnswer {
  void* function;  // null unless status is SUCCESS
  CUdriverProcAddressQueryResult status;
};

// `flags` is a CUdriverProcAddress_flags. Per-thread twins are chosen only with PER_THREAD_DEFAULT_STREAM, and only for
// names that have one.
ProcAnswer FindProc(std::string_view name, int version, uint64_t flags);

}  // namespace tally::client_shim
