// How the threads of a block leave a kernel, and what that means for those that stay: what a kernel needs before its
// threads may wait for one another at its end instead of leaving.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ptx-transforms/analysis/barrier_sites.h"
#include "ptx-transforms/analysis/uniformity.h"

namespace tally::ptx_transforms {

struct PlacedBarrier {
  uint32_t instruction = 0;
  BarrierSite site;
  bool is_uniform = false;  // all threads of the block come to it, equally often
};

class BlockExits {
 public:
  explicit BlockExits(const ControlFlow& flow);

  // sync, arrive and reduce, in the order of the text.
  const std::vector<PlacedBarrier>& barriers() const { return barriers_; }
  // Whether threads may have left while others come to a barrier for all.
  bool may_leave_before_barrier() const { return may_leave_before_barrier_; }

  // The first shfl.sync, vote.sync, bar.warp.sync, ... that may name lanes of its warp which have left, or barrier with
  // a count to which such a warp comes: it waits for lanes that have not exited, so they must not be kept.
  // `needs_warp_rows`: there is none if the warps of the launch are rows (UniformityOptions), else there may be.
  struct WarpSync {
    std::optional<uint32_t> instruction = {};
    bool needs_warp_rows = false;
  };
  WarpSync FindWarpSyncAfterExit() const;

 private:
  std::optional<uint32_t> FindWarpSyncAfterExit(const Uniformity& uniformity) const;
  bool LeadsToExitAround(uint32_t branch, uint32_t avoided) const;

  const ControlFlow& flow_;
  std::vector<PlacedBarrier> barriers_;
  std::vector<bool> has_barrier_for_all_;  // by block
  bool may_leave_before_barrier_ = false;
};

}  // namespace tally::ptx_transforms
