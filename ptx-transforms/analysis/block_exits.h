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

  // Each shfl.sync, vote.sync, bar.warp.sync, ... that may name lanes of its warp which have left, or barrier with a
  // count to which such a warp comes: it waits for lanes that have not exited, so they must not be kept. In the order
  // of the text. `warps_are_rows` as in UniformityOptions.
  std::vector<uint32_t> FindWarpSyncsAfterExit(bool warps_are_rows) const;

 private:
  bool LeadsToExitAround(uint32_t branch, uint32_t avoided) const;

  const ControlFlow& flow_;
  std::vector<PlacedBarrier> barriers_;
  std::vector<bool> has_barrier_for_all_;  // by block
  bool may_leave_before_barrier_ = false;
};

}  // namespace tally::ptx_transforms
