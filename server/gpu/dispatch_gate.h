// The one place every kernel and graph launch of this executor passes: what stands between a validated launch and the
// driver. Best-effort launches are held back here while high-priority work runs (priority_dispatch.h).
//
// Thread-safe; called by lane threads that hold their session's turn, so a wait here stalls that session and no other.
#pragma once

#include <cuda.h>

#include "server/gpu/high_priority_watch.h"

namespace tally::server {

// Whose launch, where.
struct DispatchOf {
  int device = 0;  // ordinal
  bool is_high_priority = false;
  bool can_yield = false;  // once launched it makes room by itself: no bound on how much of it is in flight
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
  // Null: nobody on this machine has priority, ever.
  virtual HighPriorityWatch* watch() { return nullptr; }
};

}  // namespace tally::server
