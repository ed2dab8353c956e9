#include "ptx-transforms/passes/pass_list.h"

#include <array>

#include "ptx-transforms/passes/gate_entry_pass.h"
#include "ptx-transforms/passes/import_globals_pass.h"
#include "ptx-transforms/passes/persistent_blocks_pass.h"
#include "ptx-transforms/passes/slice_grid_pass.h"
#include "ptx-transforms/passes/unify_barriers_pass.h"
#include "ptx-transforms/passes/yield_check_pass.h"

namespace tally::ptx_transforms {
namespace {

constexpr std::string_view kUnifyBarriers[] = {"unify_barriers"};
constexpr std::string_view kPersistentBlocks[] = {"unify_barriers", "persistent_blocks"};

constexpr std::array kPasses = {
    PassEntry{"slice_grid", "a part of the grid can be launched by itself", {}, "__tally_slice", 1, &MakeSliceGridPass},
    // Before persistent_blocks, which loops back from the end that this one makes.
    PassEntry{
        "unify_barriers", "all threads of a block leave together", {}, "__tally_unified", 3, &MakeUnifyBarriersPass},
    PassEntry{"persistent_blocks", "persistent blocks take the blocks of the grid one after another", kUnifyBarriers,
              "__tally_persistent", 1, &MakePersistentBlocksPass},
    // Last: it adds to the loop that persistent_blocks made.
    PassEntry{"yield_check", "persistent blocks stop between two blocks when asked", kPersistentBlocks,
              "__tally_persistent", 1, &MakeYieldCheckPass},
    PassEntry{"gate_entry",
              "blocks that have not begun leave when their queue is stopped",
              {},
              "__tally_gate",
              1,
              &MakeGateEntryPass},
    // After all that may refuse, so that the table names nothing in vain.
    PassEntry{"import_globals",
              "works on the variables of the program's own module",
              {},
              "__tally_imported",
              1,
              &MakeImportGlobalsPass},
};

}  // namespace

std::span<const PassEntry> AllPasses() { return kPasses; }

const PassEntry* FindPass(std::string_view name) {
  for (const PassEntry& entry : kPasses)
    if (entry.name == name) return &entry;
  return nullptr;
}

}  // namespace tally::ptx_transforms
