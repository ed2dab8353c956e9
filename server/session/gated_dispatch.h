// One launch on its way through the dispatch gate: before in the constructor, after in the destructor.
#pragma once

#include "server/gpu/dispatch_gate.h"
#include "server/session/client_context.h"
#include "server/session/served_lane.h"

namespace tally::server {

class GatedDispatch {
 public:
  // Holds the launch back if it must be. A launch that is being captured runs nothing and passes.
  GatedDispatch(ServedLane& lane, const Stream& stream, const LaunchKind& kind, bool can_yield = false)
      : gate_(stream.context->IsCapturing(stream) ? nullptr : lane.session().core.gate.get()),
        of_{stream.context->device(),
            lane.session().is_high_priority.load(std::memory_order_relaxed),
            can_yield,
            stream.real,
            lane.session().gate_tenant.get(),
            kind} {
    if (gate_ != nullptr) pass_ = gate_->BeforeDispatch(of_);
  }
  ~GatedDispatch() {
    if (gate_ != nullptr && pass_.may_go) gate_->AfterDispatch(of_, pass_);
  }
  GatedDispatch(const GatedDispatch&) = delete;
  GatedDispatch& operator=(const GatedDispatch&) = delete;

  // The client has left while the launch was held back: it is not to be made.
  bool is_cancelled() const { return !pass_.may_go; }
  // What such a launch returns, to nobody.
  static constexpr CUresult kCancelled = CUDA_ERROR_DEINITIALIZED;

 private:
  DispatchGate* const gate_;
  const DispatchOf of_;
  DispatchPass pass_;
};

// Kernels: the same code in the same shape.
template <typename Grid, typename Block>
LaunchKind KindOfKernel(const void* function, const Grid& grid, const Block& block, uint32_t shared_bytes) {
  uint64_t key = reinterpret_cast<uintptr_t>(function);
  const auto mix = [&](uint64_t word) { key = (key ^ word) * 0x9E3779B97F4A7C15 ^ key >> 29; };
  mix(grid[0] | uint64_t{grid[1]} << 32);
  mix(grid[2] | uint64_t{shared_bytes} << 32);
  mix(block[0] | uint64_t{block[1]} << 16 | uint64_t{block[2]} << 32);
  return {key, uint64_t{grid[0]} * grid[1] * grid[2]};
}

}  // namespace tally::server
