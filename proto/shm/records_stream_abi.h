// Records about streams and events, memory operations on them, and captures. Conventions: records_abi.h.
#pragma once

#include <cstdint>

namespace tally::shm {

struct CreateStream {
  uint32_t flags;  // CUstream_flags
  int32_t priority;
};
static_assert(sizeof(CreateStream) == 8);

struct CreateEvent {
  uint64_t handle;  // named by the client
  uint32_t flags;   // CUevent_flags
  uint32_t reserved;
};
static_assert(sizeof(CreateEvent) == 16);

struct BeginCapture {
  uint64_t stream;
  uint64_t graph;  // 0: a new one
  uint32_t mode;   // CUstreamCaptureMode, checked by the client; the executor always captures relaxed
  uint32_t flags;  // kUpdateCapture: CUstreamUpdateCaptureDependencies_flags
  uint32_t num_dependencies;
  uint32_t has_edge_data;  // 1: 8 bytes per dependency follow the nodes
};
static_assert(sizeof(BeginCapture) == 32);

struct CaptureState {
  uint32_t status;  // CUstreamCaptureStatus
  uint32_t num_dependencies;
  uint64_t id;
  uint64_t graph;
};
static_assert(sizeof(CaptureState) == 24);

inline constexpr uint32_t kBatchMemoryOpBytes = 48;  // a CUstreamBatchMemOpParams, verbatim
inline constexpr uint32_t kMaxBatchMemoryOps = 256;
struct MemoryOperations {
  uint64_t stream;  // unused in nodes
  uint32_t num_operations;
  uint32_t flags;
};
static_assert(sizeof(MemoryOperations) == 16);

}  // namespace tally::shm
