// One piece of work for a stream or a graph node, in the form in which it is checked, kept and executed.
//
// A call checks its arguments, makes an Operation and gives it to Issue() (capture.h), which either appends it to the
// stream or, while the stream is capturing, adds a node. Graph launches make the same tasks from the same operations.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "sim-driver/api/context.h"
#include "sim-driver/api/module.h"
#include "sim-driver/api/stream.h"
#include "sim-driver/engine/machine.h"

namespace tally::sim_driver {

struct Graph;

struct KernelOperation {
  std::shared_ptr<Module> module;  // keeps the code and its variables alive
  std::shared_ptr<Function> function;
  bool was_given_as_kernel = false;  // the program passed a CUkernel
  CUkernel library_kernel = nullptr;
  Dim3 grid, block, cluster;
  uint32_t dynamic_shared_bytes = 0;
  bool is_cooperative = false;
  bool has_priority = false;
  int priority = 0;
  std::vector<std::byte> parameters;  // packed
  std::vector<CUlaunchAttribute> attributes;
  std::shared_ptr<const AccessObserver> observer;  // what the launching thread had declared
  // Where each parameter lies in `parameters`, for cuGraphKernelNodeGetParams; made on demand.
  std::vector<void*> parameter_pointers;
};

struct CopyOperation {
  CUDA_MEMCPY3D given{};  // as the program said it, completed
  CUcontext given_context = nullptr;
  // What is copied: `depth` slices of `height` rows of `width` bytes.
  uint64_t source = 0, source_pitch = 0, source_slice = 0;
  uint64_t destination = 0, destination_pitch = 0, destination_slice = 0;
  uint64_t width = 0, height = 1, depth = 1;
  // Set for a pageable source that was copied at the call: replaces `source`.
  std::shared_ptr<std::vector<std::byte>> staged;
  // Device memory is checked again when the copy runs; pageable host memory cannot be.
  bool is_source_device = false;
  bool is_destination_device = false;
};

struct MemsetOperation {
  CUDA_MEMSET_NODE_PARAMS given{};
  CUcontext given_context = nullptr;
};

struct HostOperation {
  CUhostFn function = nullptr;
  void* argument = nullptr;
};

// cuStreamAddCallback; never in a graph.
struct CallbackOperation {
  CUstreamCallback function = nullptr;
  CUstream stream = nullptr;
  void* argument = nullptr;
};

struct EmptyOperation {};

struct EventRecordOperation {
  EventPtr event;
};

struct EventWaitOperation {
  EventPtr event;
};

struct AllocOperation {
  CUDA_MEM_ALLOC_NODE_PARAMS given{};
  std::vector<CUmemAccessDesc> access;
  std::shared_ptr<void> memory;  // gives the memory back with the last graph that has it
};

struct FreeOperation {
  CUdeviceptr address = 0;
};

struct MemOpsOperation {
  std::vector<CUstreamBatchMemOpParams> operations;
  unsigned flags = 0;
  CUcontext given_context = nullptr;
};

struct ChildOperation {
  std::shared_ptr<Graph> graph;
};

using Operation = std::variant<KernelOperation, CopyOperation, MemsetOperation, HostOperation, CallbackOperation,
                               EmptyOperation, EventRecordOperation, EventWaitOperation, AllocOperation, FreeOperation,
                               MemOpsOperation, ChildOperation>;

// The task that does `operation` in `context`. `priority` as for streams. A ChildOperation has none of its own.
TaskPtr MakeTask(Operation operation, const ContextPtr& context, int priority);

// Appends to the stream as the operation needs (events are recorded, waited for). Not for captures.
TaskPtr SubmitOperation(const StreamUse& use, Operation operation);

}  // namespace tally::sim_driver
