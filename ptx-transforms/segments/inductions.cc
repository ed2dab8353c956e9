// KernelWalk: by what registers change in loops, and what ends the loops. A small scalar evolution: sums only.
#include <optional>

#include "ptx-transforms/segments/walk.h"

namespace tally::ptx_transforms {
namespace {

// Choices between choices could be followed in very many ways.
constexpr uint32_t kMaxSteps = 2000;
constexpr uint32_t kMaxPredicateDepth = 6;  // of predicates

}  // namespace

bool KernelWalk::IsInvariant(NodeId node, uint32_t loop) const { return (formula_[node].variance >> loop & 1) == 0; }

NodeId KernelWalk::StepOfAll(const std::vector<NodeId>& latches, NodeId induction, uint32_t loop) {
  NodeId step = kNoNode;
  uint32_t budget = kMaxSteps;
  for (const NodeId latch : latches) {
    const NodeId found = latch == kNoNode ? kNoNode : StepOf(latch, induction, loop, budget);
    if (found == kNoNode || (step != kNoNode && step != found)) return kNoNode;
    step = found;
  }
  return step;
}

// s where value = induction + s and s is the same in every round; kNoNode: not such a sum.
NodeId KernelWalk::StepOf(NodeId value, NodeId induction, uint32_t loop, uint32_t& budget) {
  const FormulaNode node = formula_[value];
  if (budget == 0) return kNoNode;
  --budget;
  if (value == induction) return formula_.Constant(0, node.bits);
  if (node.bits != formula_[induction].bits || IsInvariant(value, loop)) return kNoNode;
  if (node.op == FormulaOp::kAdd || node.op == FormulaOp::kSubtract) {
    NodeId a = formula_.Operand(value, 0), b = formula_.Operand(value, 1);
    if (node.op == FormulaOp::kAdd && IsInvariant(a, loop)) std::swap(a, b);
    if (!IsInvariant(b, loop)) return kNoNode;
    const NodeId step = StepOf(a, induction, loop, budget);
    return step == kNoNode ? kNoNode : formula_.Make(node.op, node.bits, false, {step, b});
  }
  if (node.op != FormulaOp::kChoice) return kNoNode;
  NodeId step = kNoNode;
  for (uint32_t k = 0; k < node.num_operands; ++k) {
    const NodeId found = StepOf(formula_.Operand(value, k), induction, loop, budget);
    if (found == kNoNode || (step != kNoNode && step != found)) return kNoNode;
    step = found;
  }
  return step;
}

// The one induction of the loop that `value` is a sum with.
NodeId KernelWalk::FindInduction(NodeId value, uint32_t loop) const {
  while (!IsInvariant(value, loop)) {
    const FormulaNode& node = formula_[value];
    if (node.op == FormulaOp::kInduction) return segments_.inductions[node.value].loop == loop ? value : kNoNode;
    if (node.op != FormulaOp::kAdd && node.op != FormulaOp::kSubtract) return kNoNode;
    const bool is_second = IsInvariant(formula_.Operand(value, 0), loop);
    if (is_second && node.op == FormulaOp::kSubtract) return kNoNode;
    value = formula_.Operand(value, is_second ? 1 : 0);
  }
  return kNoNode;
}

// `predicate` having the value `holds` is what the loop goes on with.
void KernelWalk::AddTripTest(CountedLoop& counted, uint32_t loop, NodeId predicate, bool holds, uint32_t nesting) {
  const FormulaNode node = formula_[predicate];
  if (nesting > kMaxPredicateDepth) return;
  if (node.op == FormulaOp::kPredicateNot)
    return AddTripTest(counted, loop, formula_.Operand(predicate, 0), !holds, nesting + 1);
  if (node.op == (holds ? FormulaOp::kPredicateAnd : FormulaOp::kPredicateOr)) {  // either would end it
    AddTripTest(counted, loop, formula_.Operand(predicate, 0), holds, nesting + 1);
    return AddTripTest(counted, loop, formula_.Operand(predicate, 1), holds, nesting + 1);
  }
  if (node.op != FormulaOp::kCompare) return;
  static constexpr Comparison kMirrored[] = {Comparison::kEqual,   Comparison::kNotEqual,
                                             Comparison::kGreater, Comparison::kGreaterOrEqual,
                                             Comparison::kLess,    Comparison::kLessOrEqual};
  auto comparison = static_cast<Comparison>(node.value);
  if (!holds) comparison = Negated(comparison);
  NodeId a = formula_.Operand(predicate, 0), b = formula_.Operand(predicate, 1);
  if (IsInvariant(a, loop)) {
    std::swap(a, b);
    comparison = kMirrored[static_cast<size_t>(comparison)];
  }
  if (!IsInvariant(b, loop)) return;
  const NodeId induction = FindInduction(a, loop);
  if (induction == kNoNode) return;
  const NodeId step = segments_.inductions[formula_[induction].value].step;
  uint32_t budget = kMaxSteps;
  const NodeId offset = StepOf(a, induction, loop, budget);
  if (step == kNoNode || offset == kNoNode) return;
  const uint8_t bits = formula_[a].bits;
  const NodeId start = formula_.Make(FormulaOp::kAdd, bits, false, {formula_.Operand(induction, 0), offset});
  counted.tests.push_back({start, step, b, comparison, node.is_signed});
}

}  // namespace tally::ptx_transforms
