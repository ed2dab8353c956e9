// What the shim remembers per thread: the channel, the current context, how stream 0 is meant.
//
// Plain thread storage with a constant initial value and the initial-exec model: one instruction to reach, usable at
// any time of the thread's and the process's life, also in atexit handlers. What must be given back when a thread ends
// hangs on a pthread key, whose destructor does not run for the main thread: it goes on calling CUDA
// from static destructors.
#pragma once

#include <cstdint>

#include "proto/shm/channel_abi.h"

namespace tally::client_shim {

class Channel;
struct DeclaredSegments;

// Contexts below the current one, from cuCtxPushCurrent. Fixed: native programs nest two or three deep.
inline constexpr uint32_t kMaxContextDepth = 64;
struct ContextStack {
  uint32_t depth;
  uint32_t context[kMaxContextDepth];
};

struct ThreadState {
  Channel* channel;            // null until the first call that needs one, and after a fork
  ContextStack* below;         // null while nothing was pushed
  uint32_t context;            // current context, kNoContext if none
  bool is_per_thread;          // inside a _ptsz/_ptds entry: stream 0 is this thread's own
  uint8_t capture_mode;        // CUstreamCaptureMode of cuThreadExchangeStreamCaptureMode
  uint16_t num_captures;       // open captures begun here with a mode other than relaxed
  DeclaredSegments* declared;  // null until the thread declares something
};

extern __thread ThreadState t_thread __attribute__((tls_model("initial-exec")));

// Makes sure that the thread's end gives its channel and context stack back. Cheap after the first call in a thread.
void WatchThreadEnd();
// In the child of a fork, which has one thread: forgets everything.
void ForgetThread();

}  // namespace tally::client_shim
