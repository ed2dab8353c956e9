#include "ptx-transforms/segments/formula.h"

#include <algorithm>
#include <array>

namespace tally::ptx_transforms {
namespace {

// Recursion over operands is as deep as this.
constexpr uint16_t kMaxDepth = 400;

uint64_t HashOf(const FormulaNode& node, const std::vector<NodeId>& operands) {
  uint64_t hash = static_cast<uint64_t>(node.op) * 1000003 + node.bits * 2 + node.is_signed;
  const auto mix = [&hash](uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15 + (hash >> 29); };
  mix(node.value);
  for (const NodeId operand : operands) mix(operand);
  return hash;
}

}  // namespace

NodeId Formula::Append(FormulaNode node, const std::vector<NodeId>& operands) {
  node.first_operand = static_cast<uint32_t>(operands_.size());
  node.num_operands = static_cast<uint32_t>(operands.size());
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  nodes_.push_back(node);
  return static_cast<NodeId>(nodes_.size()) - 1;
}

NodeId Formula::Constant(uint64_t value, uint8_t bits) {
  return Make(FormulaOp::kConstant, bits, false, {}, value & MaskOf(bits));
}

NodeId Formula::Opaque(uint8_t bits, uint64_t most, const std::vector<NodeId>& origins, uint64_t variance) {
  for (const NodeId origin : origins) variance |= nodes_[origin].variance;
  return Append({.op = FormulaOp::kOpaque, .bits = bits, .value = most & MaskOf(bits), .variance = variance}, origins);
}

NodeId Formula::Load(uint8_t bits, LoadSpace space, NodeId address, uint64_t variance) {
  return Append({.op = FormulaOp::kLoad,
                 .bits = bits,
                 .value = static_cast<uint64_t>(space),
                 .variance = variance | nodes_[address].variance},
                {address});
}

NodeId Formula::Choice(uint8_t bits, const std::vector<NodeId>& operands, uint64_t variance) {
  uint16_t depth = 0;
  for (const NodeId operand : operands) {
    variance |= nodes_[operand].variance;
    depth = std::max<uint16_t>(depth, nodes_[operand].depth + 1);
  }
  if (depth > kMaxDepth) return Opaque(bits, MaskOf(bits), operands, variance);
  return Append({.op = FormulaOp::kChoice, .bits = bits, .depth = depth, .variance = variance}, operands);
}

NodeId Formula::Induction(uint8_t bits, uint32_t index, NodeId start, uint64_t variance) {
  const uint16_t depth = nodes_[start].depth + 1;
  if (depth > kMaxDepth) start = Opaque(bits, MaskOf(bits), {start}, 0);
  return Append({.op = FormulaOp::kInduction,
                 .bits = bits,
                 .depth = static_cast<uint16_t>(nodes_[start].depth + 1),
                 .value = index,
                 .variance = variance | nodes_[start].variance},
                {start});
}

NodeId Formula::Simplify(FormulaOp op, uint8_t bits, const std::vector<NodeId>& operands) {
  if (operands.empty()) return kNoNode;
  const NodeId a = operands[0];
  const auto constant = [&](size_t k) { return nodes_[operands[k]].value; };
  if (op == FormulaOp::kTruncate && nodes_[a].bits <= bits) return a;
  if (op == FormulaOp::kTruncate && IsConstant(a)) return Constant(constant(0), bits);
  if (op == FormulaOp::kTruncate && nodes_[a].op == FormulaOp::kExtend && nodes_[Operand(a, 0)].bits == bits)
    return Operand(a, 0);
  if (op == FormulaOp::kTruncate && nodes_[a].op == FormulaOp::kExtend && nodes_[Operand(a, 0)].bits < bits)
    return Make(FormulaOp::kExtend, bits, nodes_[a].is_signed, {Operand(a, 0)});
  if (op == FormulaOp::kTruncate && nodes_[a].op == FormulaOp::kPack && bits == 32) return Operand(a, 0);
  if (op == FormulaOp::kPredicateNot && nodes_[a].op == FormulaOp::kPredicateNot) return Operand(a, 0);
  if (op == FormulaOp::kSelect && operands[1] == operands[2]) return operands[1];
  if (op == FormulaOp::kPack) {  // of the halves of one register
    const NodeId low = operands[0], high = operands[1];
    if (nodes_[low].op != FormulaOp::kTruncate || nodes_[high].op != FormulaOp::kTruncate) return kNoNode;
    const NodeId whole = Operand(low, 0), shifted = Operand(high, 0);
    if (nodes_[whole].bits != 64 || nodes_[shifted].op != FormulaOp::kShiftRight) return kNoNode;
    const NodeId amount = Operand(shifted, 1);
    return Operand(shifted, 0) == whole && IsConstant(amount) && nodes_[amount].value == 32 ? whole : kNoNode;
  }
  if (operands.size() < 2 || !IsConstant(operands[1])) return kNoNode;
  const uint64_t b = constant(1);
  if (IsConstant(a)) {
    if (op == FormulaOp::kAdd) return Constant(constant(0) + b, bits);
    if (op == FormulaOp::kSubtract) return Constant(constant(0) - b, bits);
    if (op == FormulaOp::kMultiply) return Constant(constant(0) * b, bits);
  }
  const bool is_neutral = b == 0 && (op == FormulaOp::kAdd || op == FormulaOp::kSubtract || op == FormulaOp::kOr ||
                                     op == FormulaOp::kXor || op == FormulaOp::kShiftLeft);
  if (is_neutral || (op == FormulaOp::kMultiply && b == 1)) return a;
  if (op == FormulaOp::kMultiply && b == 0) return operands[1];
  if (op == FormulaOp::kAdd && nodes_[a].op == FormulaOp::kAdd && IsConstant(Operand(a, 1)))
    return Make(op, bits, false, {Operand(a, 0), Constant(nodes_[Operand(a, 1)].value + b, bits)});
  if (op == FormulaOp::kAdd && nodes_[a].op == FormulaOp::kParameterAddress)
    return Make(FormulaOp::kParameterAddress, bits, false, {}, nodes_[a].value + b);
  return kNoNode;
}

NodeId Formula::Make(FormulaOp op, uint8_t bits, bool is_signed, const std::vector<NodeId>& operands, uint64_t value) {
  const bool commutes = op == FormulaOp::kAdd || op == FormulaOp::kMultiply || op == FormulaOp::kAnd ||
                        op == FormulaOp::kOr || op == FormulaOp::kXor;
  if (commutes && IsConstant(operands[0]) && !IsConstant(operands[1]))
    return Make(op, bits, is_signed, {operands[1], operands[0]}, value);
  if (op == FormulaOp::kSubtract && IsConstant(operands[1]))
    return Make(FormulaOp::kAdd, bits, false, {operands[0], Constant(0 - nodes_[operands[1]].value, bits)});
  if (const NodeId simple = Simplify(op, bits, operands); simple != kNoNode) return simple;
  FormulaNode node = {.op = op, .bits = bits, .is_signed = is_signed, .value = value};
  for (const NodeId operand : operands) {
    node.variance |= nodes_[operand].variance;
    node.depth = std::max<uint16_t>(node.depth, nodes_[operand].depth + 1);
  }
  if (node.depth > kMaxDepth) return Opaque(bits, MaskOf(bits), operands, node.variance);
  const uint64_t hash = HashOf(node, operands);
  const auto [begin, end] = pure_.equal_range(hash);
  for (auto at = begin; at != end; ++at) {
    const FormulaNode& known = nodes_[at->second];
    if (known.op == op && known.bits == bits && known.is_signed == is_signed && known.value == value &&
        std::equal(operands.begin(), operands.end(), operands_.begin() + known.first_operand,
                   operands_.begin() + known.first_operand + known.num_operands))
      return at->second;
  }
  const NodeId made = Append(node, operands);
  pure_.emplace(hash, made);
  return made;
}

std::string_view SpecialValueName(SpecialValue value) {
  static constexpr std::array<std::string_view, kNumSpecialValues> kNames = {
      "tid.x",  "tid.y",  "tid.z",  "ctaid.x",  "ctaid.y",  "ctaid.z",
      "ntid.x", "ntid.y", "ntid.z", "nctaid.x", "nctaid.y", "nctaid.z"};
  return kNames[static_cast<size_t>(value)];
}

std::string_view ComparisonName(Comparison comparison) {
  static constexpr std::array<std::string_view, 6> kNames = {"==", "!=", "<", "<=", ">", ">="};
  return kNames[static_cast<size_t>(comparison)];
}

Comparison Negated(Comparison comparison) {
  static constexpr std::array<Comparison, 6> kOpposite = {Comparison::kNotEqual,       Comparison::kEqual,
                                                          Comparison::kGreaterOrEqual, Comparison::kGreater,
                                                          Comparison::kLessOrEqual,    Comparison::kLess};
  return kOpposite[static_cast<size_t>(comparison)];
}

}  // namespace tally::ptx_transforms
