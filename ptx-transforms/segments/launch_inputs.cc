#include "ptx-transforms/segments/launch_inputs.h"

#include <algorithm>

namespace tally::ptx_transforms {
namespace {

// Whatever an evaluation may come to from the accesses, with all loops and inductions of the kernel.
class InputSearch {
 public:
  explicit InputSearch(const KernelSegments& segments) : segments_(segments), seen_(segments.formula.size()) {}

  std::vector<ParameterPiece> Run() {
    for (const GlobalAccess& access : segments_.accesses) {
      Push(access.address);
      Push(access.extent);
      for (const AccessCondition& condition : access.conditions) Push(condition.predicate);
      for (const PointerRoot& root : access.roots) {
        const bool is_parameter =
            root.kind == PointerRoot::Kind::kParameter || root.kind == PointerRoot::Kind::kSearched;
        if (is_parameter) Add(root.value, 8);
      }
    }
    for (const CountedLoop& loop : segments_.loops) {
      for (const TripTest& test : loop.tests) {
        Push(test.start);
        Push(test.step);
        Push(test.bound);
      }
    }
    for (const InductionVariable& induction : segments_.inductions) {
      Push(induction.node);
      Push(induction.step);
      for (const NodeId latch : induction.latches) Push(latch);
    }
    while (!open_.empty()) {
      const FormulaNode& node = segments_.formula[open_.back()];
      open_.pop_back();
      if (node.op == FormulaOp::kParameter) Add(node.value, node.bits / 8);
      for (uint32_t k = 0; k < node.num_operands; ++k) Push(segments_.formula.Operand(node, k));
    }
    return Joined();
  }

 private:
  void Push(NodeId id) {
    if (id == kNoNode || seen_[id]) return;
    seen_[id] = true;
    open_.push_back(id);
  }
  void Add(uint64_t offset, uint32_t bytes) {
    // Beyond it there is nothing to read: the evaluation knows no value then.
    if (offset > segments_.parameter_bytes) return;
    found_.push_back({static_cast<uint32_t>(offset), bytes});
  }
  std::vector<ParameterPiece> Joined() {
    std::sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
    std::vector<ParameterPiece> joined;
    for (const ParameterPiece& piece : found_) {
      const uint32_t end = joined.empty() ? 0 : joined.back().offset + joined.back().bytes;
      if (joined.empty() || piece.offset > end) {
        joined.push_back(piece);
      } else {
        joined.back().bytes = std::max(end, piece.offset + piece.bytes) - joined.back().offset;
      }
    }
    return joined;
  }

  const KernelSegments& segments_;
  std::vector<bool> seen_;
  std::vector<NodeId> open_;
  std::vector<ParameterPiece> found_;
};

}  // namespace

std::vector<ParameterPiece> LaunchInputs(const KernelSegments& segments) { return InputSearch(segments).Run(); }

}  // namespace tally::ptx_transforms
