// Records that launch kernels and host functions. Conventions: records_abi.h.
#pragma once

#include <cstdint>

namespace tally::shm {

enum LaunchFlags : uint16_t {
  kLaunchCooperative = 1,  // cuLaunchCooperativeKernel
  kLaunchEx = 2,           // cuLaunchKernelEx: attributes follow, possibly none
  kLaunchExtra = 4,        // the parameters are the caller's `extra` buffer, verbatim
  kLaunchDeclared = 8,     // boxes follow the padded parameters: all that the launch touches, as its program says
  kLaunchOpaque = 16,      // its program says that it may touch anything
};
inline constexpr uint32_t kLaunchAttributeBytes =
    72;  // a CUlaunchAttribute, verbatim; events in it are session handles
inline constexpr uint32_t kMaxLaunchAttributes = 32;

// Rows of memory at equal distances, as include/tally/segments.h has them.
struct DeclaredBox {
  uint64_t address;
  uint64_t row_bytes;
  uint64_t rows;
  uint64_t pitch;  // from row to row
};
static_assert(sizeof(DeclaredBox) == 32);
inline constexpr uint32_t kMaxDeclaredBoxes = 64;  // of one launch, read and written

struct Launch {
  uint64_t function;  // kFunction or kKernel
  uint64_t stream;
  uint32_t grid[3];   // blocks
  uint32_t block[3];  // threads
  uint32_t shared_bytes;
  uint32_t parameter_bytes;  // packed at the kernel's layout offsets
  uint16_t num_attributes;
  uint16_t flags;               // LaunchFlags
  uint16_t num_declared_reads;  // kLaunchDeclared: DeclaredBoxes behind the parameters, these first
  uint16_t num_declared_writes;
};
static_assert(sizeof(Launch) == 56);

// A task of a graph that is being captured (include/tally/taskgraph.h). DeclaredBoxes follow: `num_reads`, then
// `num_writes`, then `num_scratch`; kMaxDeclaredBoxes at most.
struct BeginTask {
  uint64_t stream;
  uint32_t num_reads;
  uint32_t num_writes;
  uint32_t num_scratch;
  uint32_t reserved;
};
static_assert(sizeof(BeginTask) == 24);

struct LaunchHostFunction {
  uint64_t stream;
  uint64_t token;        // the client's name for {function, argument}; comes back in kAwaitCallback
  uint32_t is_callback;  // 1: cuStreamAddCallback (runs also after an error, gets a CUresult)
  uint32_t reserved;
};
static_assert(sizeof(LaunchHostFunction) == 24);

// Sent by the client's callback thread only, on a channel of its own.
struct AwaitCallback {
  uint64_t finished_token;  // the one just run, 0 the first time: its stream may go on
};
static_assert(sizeof(AwaitCallback) == 8);

struct ClusterQuery {
  Launch config;          // stream and parameters unused
  uint32_t want_maximum;  // 0: cuOccupancyMaxActiveClusters, 1: cuOccupancyMaxPotentialClusterSize
  uint32_t reserved;
};
static_assert(sizeof(ClusterQuery) == 64);

}  // namespace tally::shm
