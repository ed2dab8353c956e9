#include "ptx-transforms/analysis/block_exits.h"

#include <algorithm>

namespace tally::ptx_transforms {
namespace {

// The mask of a warp sync comes from activemask, so it names lanes that are there.
bool NamesActiveLanes(const LinearBody& body, uint32_t index) {
  const List<Operand>& operands = body[index].instruction->operands;
  const auto site = BarrierSiteOf(*body[index].instruction);
  if (operands.empty() || (site && site->kind != BarrierSite::Kind::kWarp)) return false;
  const RegisterId mask = body.RegisterOf(index, operands[operands.size() - 1]);
  if (mask == kNoRegister) return false;
  for (const LinearBody::Entry& entry : body.entries())
    if (std::find(entry.defines.begin(), entry.defines.end(), mask) != entry.defines.end() &&
        entry.instruction->opcode != "activemask")
      return false;
  return true;
}

}  // namespace

BlockExits::BlockExits(const ControlFlow& flow) : flow_(flow), has_barrier_for_all_(flow.blocks().size(), false) {
  const Uniformity uniformity(flow, {});
  const LinearBody& body = flow.body();
  for (uint32_t i = 0; i < body.size(); ++i) {
    const auto site = BarrierSiteOf(*body[i].instruction);
    if (!site || site->kind == BarrierSite::Kind::kWarp || site->kind == BarrierSite::Kind::kCluster) continue;
    const uint32_t block = flow.BlockOf(i);
    if (!flow.block(block).is_reachable) continue;
    const bool is_uniform = uniformity.OfExecution(i) == Variance::kBlock;
    barriers_.push_back({i, *site, is_uniform});
    if (!site->is_for_all()) continue;
    may_leave_before_barrier_ |= !is_uniform;
    if (!body[i].instruction->guard.is_present()) has_barrier_for_all_[block] = true;
  }
}

std::vector<uint32_t> BlockExits::FindWarpSyncsAfterExit(bool warps_are_rows) const {
  const LinearBody& body = flow_.body();
  const Uniformity uniformity(flow_, {.warps_are_rows = warps_are_rows});
  std::vector<uint32_t> found;
  std::vector<int8_t> verdicts(flow_.blocks().size(), -1);  // of unguarded ones; -1: not known yet
  for (uint32_t i = 0; i < body.size(); ++i) {
    if (!IsWarpSync(*body[i].instruction)) continue;
    const uint32_t block = flow_.BlockOf(i);
    if (!flow_.block(block).is_reachable || uniformity.OfExecution(i) != Variance::kThread) continue;
    if (NamesActiveLanes(body, i)) continue;
    // Lanes that its own guard leaves out go on from here.
    if (body[i].instruction->guard.is_present() && LeadsToExitAround(block, kNoBlock)) {
      found.push_back(i);
      continue;
    }
    if (verdicts[block] < 0) {
      // All branches where lanes may part on the way here.
      const std::vector<uint32_t> branches = uniformity.AllControllersOf({block});
      verdicts[block] = std::any_of(branches.begin(), branches.end(), [&](uint32_t branch) {
        return uniformity.OfBranch(branch) == Variance::kThread && LeadsToExitAround(branch, block);
      });
    }
    if (verdicts[block] == 1) found.push_back(i);
  }
  return found;
}

// Whether some way from the branch to the exit meets neither `avoided` nor a barrier for all threads (where lanes that
// left the way would be missed in the original already).
bool BlockExits::LeadsToExitAround(uint32_t branch, uint32_t avoided) const {
  std::vector<bool> is_seen(flow_.blocks().size(), false);
  std::vector<uint32_t> open = flow_.block(branch).successors;
  while (!open.empty()) {
    const uint32_t block = open.back();
    open.pop_back();
    if (block == flow_.exit_block()) return true;
    if (is_seen[block] || block == avoided || has_barrier_for_all_[block]) continue;
    is_seen[block] = true;
    open.insert(open.end(), flow_.block(block).successors.begin(), flow_.block(block).successors.end());
  }
  return false;
}

}  // namespace tally::ptx_transforms
