// The one place every kernel and graph launch of this executor passes: what stands between a validated launch and the
// driver. A best-effort executor holds launches back here while the high-priority one is busy.
//
// Thread-safe; called by lane threads that hold their session's turn, so a wait here stalls that session and no other.
#pragma once

#include <cuda.h>

namespace tally::server {

class DispatchGate {
 public:
  virtual ~DispatchGate() = default;
  // May wait until the launch may go.
  virtual void BeforeDispatch() {}
  // The launch was handed to `stream` (or failed): never waits.
  virtual void AfterDispatch(CUstream stream) { static_cast<void>(stream); }
  // Ends all waits for good: the executor is shutting down.
  virtual void Open() {}
};

}  // namespace tally::server
