// unify_barriers: all threads of a block leave a kernel together.
#pragma once

#include <memory>

#include "ptx-transforms/passes/pass.h"

namespace tally::ptx_transforms {

// Every ret and exit leads to one place at the end of the body, where all threads of the block meet and what the block
// has started asynchronously is waited for; then they leave through one ret. By itself that changes nothing that a
// program could see; persistent_blocks turns the ret into the next round.
//
// Threads that came to the end early must keep taking part in the barriers of the others, as exited threads need not.
// If it can be proved that all threads of a block always execute the same barriers, those stay as they are. If not,
// every barrier of the kernel becomes a jump to one place where all threads meet (Tally, section 4.1), and from which
// they are sent back:
//
//   meet:  barrier.red.or  any_inside, is_inside       is_inside: came from a barrier; not: from the end
//          all at the end -> leave;   else -> back behind the barrier, or, from the end, to meet again
//
// One place, because the hardware wants it: ptxas has the lanes of a warp come together at a barrier.red before it goes
// on (WARPSYNC), so some of them at a barrier of their own and others at the end would wait for one another for ever.
// A kernel that has reductions of its own meets twice for each barrier: the first says whether anybody is still
// inside, the second reduces.
//
// Operations of a warp (shfl.sync, vote.sync, match.sync, redux.sync, bar.warp.sync) wait for the lanes of their mask
// that have not exited, so a lane that only waits at the end would be missed. Where lanes leave for good (see
// leaving_lanes.h) all that are left of the warp therefore first agree who stays,
//
//   bar.warp.sync lanes;  vote.sync.ballot.b32 lanes, stays, lanes;     lanes = -1 at the start of the block
//
// and every operation that could miss one names `mask & lanes` in place of `mask`. Why that is the same on sm_70 and
// newer, where lanes of a warp advance independently and an operation waits for whom it names wherever they are:
//   * It waits for nobody else. The lanes that are left take the same way to all such branches and operations, so at
//     each `lanes` is the same for all of them, and all of them come. In the original it waits for the named lanes that
//     are left, and for those that leave until they have; these come to no further operation of a warp, hence to none
//     that it could be meeting.
//   * It gives the same. vote, match and redux leave out lanes that have exited, as those which are not named; what
//     shfl reads from either is undefined, and whether the lane is in range does not depend on who is there.
//     elect.sync says nothing about which of the named lanes it takes, and is refused.
//   * Agreeing waits for nobody who waits: no barrier, loop or operation of a warp lies before such a branch at which
//     some lanes that are left could wait for others that are past it.
//   * What a lane wrote before it left is there for those who stay, as bar.warp.sync orders it; what it writes later on
//     its way they could not read without a race, as nothing orders it before what follows an operation which it does
//     not take part in. Lanes that write shared memory on the way are refused all the same.
// Lanes that were never there, in the last warp of a block, count as exited in both.
std::unique_ptr<Pass> MakeUnifyBarriersPass();

}  // namespace tally::ptx_transforms
