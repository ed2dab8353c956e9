// One launch, or one piece of a copy or fill, on its way through admission: before in the constructor, after in the
// destructor.
#pragma once

#include "server/executor/dispatch/admission.h"
#include "server/executor/issue/launch_owner.h"
#include "server/executor/issue/launch_stream.h"
#include "server/executor/issue/pending_launch.h"
#include "server/executor/issue/traced_work.h"

namespace tally::server {

class AdmittedDispatch {
 public:
  // Holds back what is asked if it must be, unless it `passes`. `what`: for recordings.
  AdmittedDispatch(const LaunchOwner& owner, const LaunchStream& stream, const scheduler::LaunchAsked& asked,
                   bool passes, const TracedWork::What& what)
      : traced_(owner, stream, what, passes),
        admission_(passes ? nullptr : &owner.admission),
        place_{stream.device, owner.is_high_priority.load(std::memory_order_relaxed), stream.real,
               &owner.admission_tenant} {
    if (admission_ == nullptr) return;
    if (!owner.AwaitShare(stream.device)) {
      pass_.may_go = false;
      return;
    }
    pass_ = admission_->BeforeDispatch(place_, asked);
    if (pass_.may_go) stream.NoteBusy();
    traced_.OnAdmitted(pass_.may_go, pass_.is_noted() || !pass_.may_go);
  }
  // A launch that is being captured runs nothing and passes.
  AdmittedDispatch(const PendingLaunch& launch, const scheduler::LaunchAsked& asked)
      : AdmittedDispatch(*launch.owner, *launch.stream, asked, launch.is_captured, {launch.kernel, ""}) {}
  ~AdmittedDispatch() {
    if (admission_ != nullptr && pass_.may_go) admission_->AfterDispatch(place_, pass_);
  }
  AdmittedDispatch(const AdmittedDispatch&) = delete;
  AdmittedDispatch& operator=(const AdmittedDispatch&) = delete;

  // The client has left while the launch was held back: it is not to be made.
  bool is_cancelled() const { return !pass_.may_go; }
  // Behind something that does not end: the pieces that are left need not wait as long each.
  bool is_forced() const { return pass_.is_forced; }
  // What such a launch returns, to nobody.
  static constexpr CUresult kCancelled = CUDA_ERROR_DEINITIALIZED;

 private:
  TracedWork traced_;
  Admission* const admission_;
  const DispatchPlace place_;
  DispatchPass pass_;
};

// What such a launch asks for in place of the pending one, as far as its shape tells.
template <typename Grid, typename Block>
scheduler::LaunchAsked AskedOfKernel(const PendingLaunch& launch, const void* function, const Grid& grid,
                                     const Block& block, uint32_t shared_bytes) {
  uint64_t kind = reinterpret_cast<uintptr_t>(function);
  const auto mix = [&](uint64_t word) { kind = (kind ^ word) * 0x9E3779B97F4A7C15 ^ kind >> 29; };
  mix(grid[0] | uint64_t{grid[1]} << 32);
  mix(grid[2] | uint64_t{shared_bytes} << 32);
  mix(block[0] | uint64_t{block[1]} << 16 | uint64_t{block[2]} << 32);
  scheduler::LaunchAsked asked;
  asked.kind = kind;
  asked.num_blocks = uint64_t{grid[0]} * grid[1] * grid[2];
  asked.turnaround = launch.turnaround;
  return asked;
}

}  // namespace tally::server
