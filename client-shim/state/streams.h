// What the client keeps about streams, and how a CUstream argument becomes a word of a request.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client-shim/state/completion.h"
#include "client-shim/state/slot_table.h"

namespace tally::client_shim {

class Channel;
class Process;

struct Stream {
  uint64_t handle = 0;
  uint64_t id = 0;  // cuStreamGetId: unique while the process lives
  uint32_t context = 0;
  uint32_t flags = 0;  // CUstream_flags
  int32_t priority = 0;
  CompletedBefore completed;  // what waits for this stream have told
};

// The value that stands for `stream` in a request: kLegacyStream, kPerThreadStream or a handle. Stream 0 means legacy,
// or per-thread inside a _ptsz/_ptds entry. No lock, no allocation.
//   CUDA_ERROR_INVALID_CONTEXT  a default stream, and no context is current
//   CUDA_ERROR_INVALID_HANDLE   not a stream
CUresult ResolveStream(CUstream stream, uint64_t* word);

// The same for work that is put on the stream.
//   what CheckLegacyStream says (captures.h)  the legacy stream, while a blocking stream of its context captures
CUresult ResolveStreamForWork(Process& process, CUstream stream, uint64_t* word);

// Before work is put on a stream in a process that has managed variables: the device gets what the host changed.
CUresult SendManagedVariables(Process& process);

// After a call that found work complete: the host gets what the device changed.
CUresult FetchManagedVariables();
// How every synchronising call ends: the same, and the first failure of an asynchronous call that was not reported yet
// is.
CUresult FinishWait(Channel* channel);

// The context a resolved stream belongs to.
uint32_t ContextOfStream(uint64_t word);

}  // namespace tally::client_shim
