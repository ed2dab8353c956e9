// A launch as a value: checked, with everything by value that the driver will want, and not yet handed to it.
//
//   session/  the record is checked and becomes a PendingLaunch      (launch_record.h, launch_ops.cc)
//   issue/    a form is chosen, admission is passed                    (launch_forms.h, admitted_dispatch.h)
//             as it is | in slices | moved to PersistentRuns | moved to a GatedQueue, which may make it again
//
// What it points at (kernel, stream, owner) is the session's and guarded by its sequencer. Queues that it is moved to
// look at its shape, parameters, attributes and on_turnaround only, so these may outlive the session.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "proto/shm/records_abi.h"
#include "server/executor/dispatch/launch_shape.h"
#include "server/executor/issue/small_buffer.h"
#include "server/executor/issue/transfer.h"

namespace tally::ptx_transforms {
struct LaunchSegments;
}  // namespace tally::ptx_transforms

namespace tally::server {

struct Kernel;
struct KernelOnDevice;
struct LaunchOwner;
struct LaunchStream;

struct PendingLaunch {
  Kernel* kernel = nullptr;  // null: it is a transfer, which windows hold like launches
  Transfer transfer;         // meaningless if there is a kernel; all below but owner, stream and turnaround otherwise
  LaunchShape shape;
  uint16_t flags = 0;  // shm::LaunchFlags
  // The program's own, `parameter_bytes` of them: for a kernel with a layout as many as it takes, at least. Forms
  // append what is theirs.
  SmallBuffer parameters;
  uint32_t parameter_bytes = 0;
  std::vector<CUlaunchAttribute> attributes;  // events in them are the driver's
  // kLaunchDeclared: the first `num_declared_reads` are read, the others written; otherwise these mean nothing. Nobody
  // has looked at their numbers.
  std::vector<shm::DeclaredBox> declared;
  uint32_t num_declared_reads = 0;

  const LaunchOwner* owner = nullptr;
  LaunchStream* stream = nullptr;
  bool is_captured = false;  // it becomes a node of a graph: nothing runs, nothing is held back
  // Within what time it should give the GPU back, if its program has a threshold of its own; zero: everybody's.
  std::chrono::nanoseconds turnaround{0};
  // The kernel on the stream's device; null until a form is to be chosen.
  KernelOnDevice* here = nullptr;
  // Which memory it may read and write; null: nobody has asked.
  std::shared_ptr<const ptx_transforms::LaunchSegments> segments;
  // Told, on a watching thread, how long it took from the announcement of high-priority work until this launch had
  // given the GPU back. May be empty.
  std::function<void(std::chrono::nanoseconds)> on_turnaround;

  bool is_transfer() const { return kernel == nullptr; }
  bool has_own_buffer() const { return (flags & shm::kLaunchExtra) != 0; }  // the caller's `extra`
  int num_threads() const { return static_cast<int>(shape.block[0] * shape.block[1] * shape.block[2]); }
};

}  // namespace tally::server
