// One launch on its way through the dispatch gate: before in the constructor, after in the destructor.
#pragma once

#include "server/gpu/dispatch_gate.h"
#include "server/session/client_context.h"
#include "server/session/served_lane.h"

namespace tally::server {

class GatedDispatch {
 public:
  // Holds the launch back if it must be. A launch that is being captured runs nothing and passes.
  GatedDispatch(ServedLane& lane, const Stream& stream, bool can_yield = false)
      : gate_(stream.context->IsCapturing(stream) ? nullptr : lane.session().core.gate.get()),
        of_{stream.context->device(), lane.session().is_high_priority.load(std::memory_order_relaxed), can_yield},
        stream_(stream.real) {
    if (gate_ != nullptr) gate_->BeforeDispatch(of_);
  }
  ~GatedDispatch() {
    if (gate_ != nullptr) gate_->AfterDispatch(of_, stream_);
  }
  GatedDispatch(const GatedDispatch&) = delete;
  GatedDispatch& operator=(const GatedDispatch&) = delete;

 private:
  DispatchGate* const gate_;
  const DispatchOf of_;
  const CUstream stream_;
};

}  // namespace tally::server
