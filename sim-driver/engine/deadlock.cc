#include "sim-driver/engine/deadlock.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "sim-driver/engine/execution.h"
#include "sim-driver/engine/grid.h"
#include "sim-driver/engine/lanes.h"
#include "sim-driver/engine/mbarrier.h"
#include "sim-driver/engine/operations.h"

namespace tally::sim_driver {
namespace {

// Of a loop around a wait: longer ones are no plain waits.
constexpr uint32_t kMostSteps = 64;

// The PTX of an instruction, without its guard.
std::string_view TextOf(const Grid& grid, const FunctionCode& function, const Instruction* i) {
  const SourceRef& source = function.sources[static_cast<size_t>(i - function.instructions.data())];
  std::string_view text =
      std::string_view(*grid.code.texts[source.text]).substr(source.begin, source.end - source.begin);
  if (text.starts_with('@')) text.remove_prefix(std::min(text.find_first_of(" \t\n"), text.size()));
  text.remove_prefix(std::min(text.find_first_not_of(" \t\n"), text.size()));
  return text;
}

// Does what it computes depend on registers and mbarriers alone, and does it change nothing but registers?
bool IsPure(const Grid& grid, const Split& split) {
  const Instruction* i = split.pc;
  if (IsMBarrierWait(*i) || i->op == &OpBranch || i->op == &OpBranchConditional || i->op == &OpConverge ||
      i->op == &OpGuard)
    return true;
  const std::string_view text = TextOf(grid, *split.frame->function, i);
  if (text.starts_with("mbarrier.try_wait") || text.starts_with("mbarrier.test_wait")) return true;  // its address
  const std::string_view opcode = text.substr(0, text.find_first_of(". \t\n"));
  constexpr std::string_view kPure[] = {"mov", "setp", "selp", "and", "or", "xor", "not", "add", "sub", "shl", "shr"};
  // The clock is no register of the thread.
  return std::ranges::find(kPure, opcode) != std::end(kPure) && text.find("%clock") == std::string_view::npos &&
         text.find("%globaltimer") == std::string_view::npos;
}

// Is the split just behind an mbarrier wait that no lane of it came through?
bool HasFailedToPass(const Warp& w, const Split& split) {
  const Instruction* first = split.frame->function->instructions.data();
  if (split.pc == first || !IsMBarrierWait(split.pc[-1])) return false;
  const auto passed = *reinterpret_cast<const uint32_t*>(split.frame->registers + split.pc[-1].d);
  return (passed & split.mask) == 0 && w.delayed_turns == 0;
}

// Executes one instruction of split `index`. False: it is no part of a plain wait, or lanes part there.
bool Step(Warp& w, size_t index) {
  const Split before = w.splits[index];
  const size_t num_splits = w.splits.size();
  if (!IsPure(*w.block->cluster->grid, before)) return false;
  w.current = static_cast<uint32_t>(index);
  StepWarp(w);
  return w.splits.size() == num_splits && w.splits[index].mask == before.mask &&
         w.splits[index].frame == before.frame && w.splits[index].state == SplitState::kRunnable;
}

bool StepToFailure(Warp& w, size_t index) {
  for (uint32_t k = 0; k < kMostSteps; ++k) {
    if (!Step(w, index)) return false;
    if (HasFailedToPass(w, w.splits[index])) return true;
  }
  return false;
}

// Once around its loop the split is where it was, and has the same registers.
bool OnlyPolls(Warp& w, size_t index) {
  if (!HasFailedToPass(w, w.splits[index]) && !StepToFailure(w, index)) return false;
  const Split before = w.splits[index];
  const std::vector<std::byte> registers(before.frame->registers,
                                         before.frame->registers + before.frame->function->frame_bytes);
  if (!StepToFailure(w, index)) return false;
  return w.splits[index].pc == before.pc &&
         std::memcmp(registers.data(), before.frame->registers, registers.size()) == 0;
}

}  // namespace

bool WaitsForEver(Cluster& cluster) {
  if (!cluster.deliveries.empty()) return false;
  bool any_polls = false;
  for (Block& block : cluster.blocks) {
    for (Warp& w : block.warps) {
      if (w.live == 0) continue;
      if (w.delayed_turns != 0 || HasWaitingLanes(w)) return false;
      for (size_t k = 0; k < w.splits.size(); ++k) {
        if (w.splits[k].state == SplitState::kSleeping) return false;
        if (w.splits[k].state != SplitState::kRunnable) continue;
        if (!OnlyPolls(w, k) || cluster.fault) return false;
        any_polls = true;
      }
    }
  }
  return any_polls;
}

}  // namespace tally::sim_driver
