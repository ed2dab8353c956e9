#include "ptx-transforms/analysis/barrier_sites.h"

namespace tally::ptx_transforms {

std::optional<BarrierSite> BarrierSiteOf(const Instruction& instruction, bool* is_unknown) {
  if (is_unknown != nullptr) *is_unknown = false;
  if (instruction.opcode != "bar" && instruction.opcode != "barrier") return std::nullopt;
  const auto unknown = [&]() -> std::optional<BarrierSite> {
    if (is_unknown != nullptr) *is_unknown = true;
    return std::nullopt;
  };
  BarrierSite site;
  size_t next = 0;
  const auto modifier = [&] {
    return next < instruction.modifiers.size() ? instruction.modifiers[next] : std::string_view();
  };
  if (modifier() == "warp") {
    site.kind = BarrierSite::Kind::kWarp;
    return site;
  }
  if (modifier() == "cluster") {
    site.kind = BarrierSite::Kind::kCluster;
    return site;
  }
  if (modifier() == "cta") ++next;
  const std::string_view what = modifier();
  // bar is the old name of barrier.cta with .aligned.
  site.is_aligned = instruction.opcode == "bar" || instruction.HasModifier("aligned");
  const List<Operand>& operands = instruction.operands;
  size_t first = 0;
  size_t last = operands.size();
  if (what == "sync") {
    site.kind = BarrierSite::Kind::kSync;
  } else if (what == "arrive") {
    site.kind = BarrierSite::Kind::kArrive;
  } else if (what == "red") {
    site.kind = BarrierSite::Kind::kReduce;
    site.reduction = instruction.HasModifier("popc")  ? BarrierSite::Reduction::kPopc
                     : instruction.HasModifier("and") ? BarrierSite::Reduction::kAnd
                     : instruction.HasModifier("or")  ? BarrierSite::Reduction::kOr
                                                      : BarrierSite::Reduction::kNone;
    if (operands.size() < 3 || site.reduction == BarrierSite::Reduction::kNone) return unknown();
    site.result = &operands[0];
    site.predicate = &operands[operands.size() - 1];
    if (site.predicate->kind != OperandKind::kRegister || site.result->kind != OperandKind::kRegister) return unknown();
    first = 1;
    last = operands.size() - 1;
  } else {
    return unknown();
  }
  if (last - first < 1 || last - first > 2) return unknown();
  site.has_count = last - first == 2;
  const Operand& id = operands[first];
  if (id.kind == OperandKind::kInteger) {
    if (id.bits > 15) return unknown();
    site.id = static_cast<uint32_t>(id.bits);
  } else if (id.kind != OperandKind::kRegister) {
    return unknown();
  }
  return site;
}

bool IsWarpSync(const Instruction& instruction) {
  if (const auto site = BarrierSiteOf(instruction)) return site->kind == BarrierSite::Kind::kWarp || site->has_count;
  return instruction.opcode == "shfl" || instruction.opcode == "vote" || instruction.opcode == "match" ||
         instruction.opcode == "redux" || instruction.opcode == "elect";
}

}  // namespace tally::ptx_transforms
