#include "ptx-transforms/analysis/leaving_lanes.h"

#include <algorithm>
#include <utility>

#include "ptx-transforms/analysis/barrier_sites.h"
#include "ptx-transforms/analysis/spin_loops.h"

namespace tally::ptx_transforms {
namespace {

// Sets of blocks.
using Blocks = std::vector<bool>;

bool WritesSharedMemory(const Instruction& instruction) {
  const std::string_view opcode = instruction.opcode;
  if (opcode != "st" && opcode != "atom" && opcode != "red" && opcode != "cp" && opcode != "stmatrix") return false;
  return !instruction.HasModifier("global") && !instruction.HasModifier("local") && !instruction.HasModifier("param") &&
         !instruction.HasModifier("param::func");
}

class LeavingSearch {
 public:
  LeavingSearch(const ControlFlow& flow, bool warps_are_rows)
      : flow_(flow), body_(flow.body()), warps_are_rows_(warps_are_rows), leads_to_sync_(flow.blocks().size(), false) {
    std::vector<uint32_t> open;
    for (uint32_t i = 0; i < body_.size(); ++i)
      if (IsWarpSync(*body_[i].instruction)) open.push_back(flow.BlockOf(i));
    while (!open.empty()) {
      const uint32_t block = open.back();
      open.pop_back();
      if (leads_to_sync_[block]) continue;
      leads_to_sync_[block] = true;
      open.insert(open.end(), flow.block(block).predecessors.begin(), flow.block(block).predecessors.end());
    }
  }

  std::optional<std::vector<LeavingBranch>> Find(std::span<const uint32_t> syncs) const;

 private:
  std::optional<LeavingBranch> BranchOf(uint32_t block) const;
  bool WritesSharedMemoryFrom(uint32_t block) const;
  Uniformity UniformityWithout(const Blocks* branches) const {
    return Uniformity(flow_, {.warps_are_rows = warps_are_rows_, .ignored_branches = branches});
  }
  Blocks Candidates(std::span<const uint32_t> syncs) const;
  bool IsOrderly(const Uniformity& uniformity) const;

  const ControlFlow& flow_;
  const LinearBody& body_;
  const bool warps_are_rows_;
  Blocks leads_to_sync_;
};

std::optional<LeavingBranch> LeavingSearch::BranchOf(uint32_t block) const {
  const ControlFlow::BasicBlock& here = flow_.block(block);
  if (!here.is_reachable || here.successors.size() != 2) return std::nullopt;
  const Instruction& last = *body_[here.end - 1].instruction;
  if ((last.opcode != "bra" && !IsLeave(last)) || !last.guard.is_present()) return std::nullopt;
  const bool leaves_if_taken = !leads_to_sync_[here.successors[0]];
  if (leaves_if_taken != leads_to_sync_[here.successors[1]]) return std::nullopt;
  if (WritesSharedMemoryFrom(here.successors[leaves_if_taken ? 0 : 1])) return std::nullopt;
  return LeavingBranch{here.end - 1, leaves_if_taken};
}

bool LeavingSearch::WritesSharedMemoryFrom(uint32_t block) const {
  Blocks is_seen(flow_.blocks().size(), false);
  std::vector<uint32_t> open = {block};
  while (!open.empty()) {
    const uint32_t here = open.back();
    open.pop_back();
    if (is_seen[here]) continue;
    is_seen[here] = true;
    for (uint32_t i = flow_.block(here).begin; i < flow_.block(here).end; ++i)
      if (WritesSharedMemory(*body_[i].instruction)) return true;
    open.insert(open.end(), flow_.block(here).successors.begin(), flow_.block(here).successors.end());
  }
  return false;
}

// All branches on the ways to `syncs` that could be such branches.
Blocks LeavingSearch::Candidates(std::span<const uint32_t> syncs) const {
  const Uniformity uniformity = UniformityWithout(nullptr);
  Blocks candidates(flow_.blocks().size(), false);
  std::vector<uint32_t> blocks;
  for (const uint32_t sync : syncs) blocks.push_back(flow_.BlockOf(sync));
  for (const uint32_t branch : uniformity.AllControllersOf(std::move(blocks)))
    candidates[branch] = uniformity.OfBranch(branch) == Variance::kThread && BranchOf(branch).has_value();
  return candidates;
}

// Whether all lanes of a warp that are left come together to all warp operations and barriers.
bool LeavingSearch::IsOrderly(const Uniformity& uniformity) const {
  for (uint32_t i = 0; i < body_.size(); ++i) {
    const Instruction& instruction = *body_[i].instruction;
    if (!flow_.block(flow_.BlockOf(i)).is_reachable) continue;
    if (!IsWarpSync(instruction) && !BarrierSiteOf(instruction)) continue;
    if (uniformity.OfExecution(i) == Variance::kThread) return false;
  }
  return true;
}

std::optional<std::vector<LeavingBranch>> LeavingSearch::Find(std::span<const uint32_t> syncs) const {
  Blocks branches = Candidates(syncs);
  // Those that all lanes come to, if the others of the set are what they are taken for: the largest such set. Each
  // round takes one away at least; kernels that need many rounds are not what this is for.
  constexpr int kMaxRounds = 16;
  for (int round = 0;; ++round) {
    if (round == kMaxRounds) return std::nullopt;
    const Uniformity uniformity = UniformityWithout(&branches);
    bool is_stable = true;
    for (uint32_t block = 0; block < branches.size(); ++block) {
      if (!branches[block] || uniformity.OfBlock(block) != Variance::kThread) continue;
      branches[block] = false;
      is_stable = false;
    }
    if (!is_stable) continue;
    if (!IsOrderly(uniformity)) return std::nullopt;
    // Where no lanes part there is nobody to count.
    std::vector<LeavingBranch> found;
    for (uint32_t block = 0; block < branches.size(); ++block)
      if (branches[block] && uniformity.OfBranch(block) == Variance::kThread) found.push_back(*BranchOf(block));
    return found;
  }
}

}  // namespace

std::optional<std::vector<LeavingBranch>> FindLeavingBranches(const ControlFlow& flow, std::span<const uint32_t> syncs,
                                                              bool warps_are_rows) {
  if (FindSpinLoop(flow, WaitsFor::kOtherThreads)) return std::nullopt;
  return LeavingSearch(flow, warps_are_rows).Find(syncs);
}

}  // namespace tally::ptx_transforms
