// Lanes that leave a kernel before others of their warp come to a warp operation: when it can be told, at that
// operation, which lanes are left.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ptx-transforms/analysis/uniformity.h"

namespace tally::ptx_transforms {

// The end of a basic block where lanes part for good: one side leads to an end of the kernel and to no further warp
// operation, so that whoever takes it is not missed by any.
struct LeavingBranch {
  uint32_t instruction = 0;      // a guarded bra, ret or exit
  bool leaves_if_taken = false;  // else those leave that go on behind it
};

// The branches after each of which the lanes that stay must be counted, such that `syncs` (warp operations) meet
// exactly those that stayed at all of them so far. Nothing if that cannot be shown. It can if, apart from those
// branches,
//   * all lanes of a warp go the same way to every such branch and every warp operation, so that both come in the same
//     order for all lanes that are left, and counting them at the branch waits for nobody who goes another way;
//   * the same holds for the barriers of the block, and no loop waits for another thread: nobody waits, on the way to
//     a branch, for a lane that already waits there;
//   * those who leave write no shared memory on their way, so nobody relies on that being done once they have left.
std::optional<std::vector<LeavingBranch>> FindLeavingBranches(const ControlFlow& flow, std::span<const uint32_t> syncs,
                                                              bool warps_are_rows);

}  // namespace tally::ptx_transforms
