// What sessions may hold, each and those of one user together. Set once, when the executor starts.
#pragma once

#include <chrono>
#include <cstdint>

#include "proto/shm/handshake_abi.h"

namespace tally::server {

// What one session may use. Asking for more is answered with CUDA_ERROR_OUT_OF_MEMORY (memory) or evicts (handles).
struct SessionLimits {
  uint64_t device_memory_bytes = 0;  // 0: whatever the device has
  uint64_t pinned_bytes = 0;         // 0: half of the machine's memory
  uint64_t image_bytes = uint64_t{8} << 30;
  uint32_t channels = shm::kMaxChannelsPerSession;
  uint64_t output_bytes = uint64_t{4} << 20;  // of device printf, not fetched yet
  uint32_t handles_per_kind = 1u << 20;
  // How long a client may take to acknowledge a host function before its session is evicted; the shorter one while a
  // call of another session waits for everything in the context.
  std::chrono::milliseconds host_function_timeout{300'000};
  std::chrono::milliseconds host_function_patience{10'000};
};

// What the sessions of one user may hold in one executor, together.
struct UserLimits {
  uint64_t pinned_bytes = 0;  // 0: half of the machine's memory
  uint64_t image_bytes = uint64_t{16} << 30;
  uint32_t channels = 2048;
  uint64_t output_bytes = uint64_t{64} << 20;
};

}  // namespace tally::server
