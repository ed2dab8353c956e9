// The one place every kernel and graph launch of this executor passes: what stands between a validated launch and the
// driver. Best-effort launches are held back here while high-priority work runs (priority_dispatch.h).
//
// Thread-safe; called by lane threads that hold their session's turn, so a wait here stalls that session and no other.
#pragma once

#include <cuda.h>

namespace tally::server {

// Whose launch, where.
struct DispatchOf {
  int device = 0;  // ordinal
  bool is_high_priority = false;
};

class DispatchGate {
 public:
  virtual ~DispatchGate() = default;
  // May wait until the launch may go.
  virtual void BeforeDispatch(DispatchOf) {}
  // The launch was handed to `stream` (or failed): never waits. Exactly one per BeforeDispatch.
  virtual void AfterDispatch(DispatchOf, CUstream) {}
  // Ends all waits for good: the executor is shutting down.
  virtual void Open() {}
};

}  // namespace tally::server
