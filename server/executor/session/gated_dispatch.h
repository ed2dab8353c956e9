// One launch, or one piece of a copy or fill, on its way through the dispatch gate: before in the constructor, after in
// the destructor.
#pragma once

#include <algorithm>
#include <bit>

#include "server/executor/dispatch/dispatch_gate.h"
#include "server/executor/session/box_copy.h"
#include "server/executor/session/client_context.h"
#include "server/executor/session/served_request.h"

namespace tally::server {

// When a launch makes room for others.
enum class HowItEnds : uint8_t {
  kAtItsEnd,   // whenever that is
  kSoon,       // within the turnaround threshold, by itself; its kind says when
  kWhenAsked,  // within the turnaround threshold, once asked to
};

class GatedDispatch {
 public:
  // Holds the launch back if it must be. A launch that is being captured runs nothing and passes.
  GatedDispatch(ServedRequest& served, const Stream& stream, const LaunchKind& kind,
                HowItEnds ends = HowItEnds::kAtItsEnd)
      : gate_(stream.context->IsCapturing(stream) ? nullptr : served.session().core.gate.get()),
        of_{stream.context->device(),
            served.session().is_high_priority.load(std::memory_order_relaxed),
            ends == HowItEnds::kWhenAsked,
            ends == HowItEnds::kSoon,
            std::chrono::nanoseconds(served.session().turnaround_ns.load(std::memory_order_relaxed)),
            stream.real,
            served.session().gate_tenant.get(),
            kind} {
    if (gate_ != nullptr) served.session().NoteWork(stream, /*is_launch=*/true);
    if (gate_ != nullptr) pass_ = gate_->BeforeDispatch(of_);
  }
  // One piece of a copy or fill. Those of high-priority tenants are not announced: what matters comes behind them.
  GatedDispatch(ServedRequest& served, const Stream& stream, CopyDirection direction, uint64_t size_bytes)
      : gate_(HoldsCopies(served, stream) ? served.session().core.gate.get() : nullptr),
        of_{.device = stream.context->device(),
            .turnaround = std::chrono::nanoseconds(served.session().turnaround_ns.load(std::memory_order_relaxed)),
            .stream = stream.real,
            .tenant = served.session().gate_tenant.get(),
            .kind = KindOfCopy(direction, size_bytes)} {
    served.session().NoteWork(stream, /*is_launch=*/false);
    if (gate_ != nullptr) pass_ = gate_->BeforeDispatch(of_);
  }
  // Into pieces of what size a copy is cut, so that each takes a fraction of a millisecond.
  static uint64_t PieceBytes(ServedRequest& served, const Stream& stream, CopyDirection direction) {
    if (!HoldsCopies(served, stream)) return UINT64_MAX;
    return direction == CopyDirection::kDevice ? kDevicePiece : kHostPiece;
  }
  ~GatedDispatch() {
    if (gate_ != nullptr && pass_.may_go) gate_->AfterDispatch(of_, pass_);
  }
  GatedDispatch(const GatedDispatch&) = delete;
  GatedDispatch& operator=(const GatedDispatch&) = delete;

  // The client has left while the launch was held back: it is not to be made.
  bool is_cancelled() const { return !pass_.may_go; }
  // Behind something that does not end: the pieces that are left need not wait as long each.
  bool is_forced() const { return pass_.is_forced; }
  // What such a launch returns, to nobody.
  static constexpr CUresult kCancelled = CUDA_ERROR_DEINITIALIZED;

 private:
  static constexpr uint64_t kHostPiece = uint64_t{8} << 20;      // 0.15 ms at 55 GB/s
  static constexpr uint64_t kDevicePiece = uint64_t{256} << 20;  // the same at 1.7 TB/s

  static bool HoldsCopies(ServedRequest& served, const Stream& stream) {
    return served.session().core.gate->holds_copies() &&
           !served.session().is_high_priority.load(std::memory_order_relaxed) && !stream.context->IsCapturing(stream);
  }
  // Copies of about the same size in one direction; they leave the multiprocessors to others.
  static LaunchKind KindOfCopy(CopyDirection direction, uint64_t size_bytes) {
    const auto magnitude = static_cast<uint64_t>(std::bit_width(size_bytes));
    const uint64_t fraction = magnitude > 3 ? size_bytes >> (magnitude - 3) : size_bytes;
    const uint64_t bytes_per_us = direction == CopyDirection::kDevice ? 1'000'000 : 25'000;
    return {uint64_t{1} << 63 | static_cast<uint64_t>(direction) << 32 | magnitude << 8 | fraction, 1,
            std::chrono::nanoseconds(1000 + size_bytes * 1000 / bytes_per_us)};
  }

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
  return {key, uint64_t{grid[0]} * grid[1] * grid[2], {}};
}

}  // namespace tally::server
