// KernelWalk: what instructions leave in registers.
#include <algorithm>
#include <array>

#include "ptx-transforms/analysis/control_flow.h"
#include "ptx-transforms/analysis/visit.h"
#include "ptx-transforms/segments/walk.h"

namespace tally::ptx_transforms {

std::string MnemonicOf(const Instruction& instruction) {
  std::string text(instruction.opcode);
  for (const std::string_view modifier : instruction.modifiers) (text += '.') += modifier;
  return text;
}

OperationType TypeOf(const Instruction& instruction, uint32_t from_last) {
  for (size_t k = instruction.modifiers.size(); k-- > 0;) {
    const ScalarType type = ScalarTypeFromName(instruction.modifiers[k]);
    if (type == ScalarType::kNone) continue;
    if (from_last-- > 0) continue;
    const std::string_view name = ScalarTypeName(type);
    const uint8_t bits = type == ScalarType::kPred ? 1 : static_cast<uint8_t>(ScalarTypeBytes(type) * 8);
    return {bits, name[0] == 's', name[0] == 's' || name[0] == 'u' || (name[0] == 'b' && name[1] != 'f')};
  }
  return {0, false, false};
}

NodeId KernelWalk::Unknown(Frame& frame, uint8_t bits) {
  return formula_.Opaque(bits, MaskOf(bits), {}, frame.masks[frame.block]);
}

// `value` in another width, as a register operand of that width reads it.
NodeId KernelWalk::Fitted(NodeId value, uint8_t bits, uint64_t mask) {
  const uint8_t has = formula_[value].bits;
  if (has == bits) return value;
  if (has > bits && bits > 1 && has > 1) return formula_.Make(FormulaOp::kTruncate, bits, false, {value});
  return formula_.Opaque(bits, MaskOf(bits), {value}, mask);
}

// What a load leaves in a register that is wider than what it loads.
NodeId KernelWalk::Widened(const Frame& frame, const Operand& to, NodeId value, bool is_signed) {
  if (to.kind != OperandKind::kRegister) return value;
  auto found = frame.register_bits.find(to.name);
  // r<10> declares r0 to r9.
  for (size_t size = to.name.size(); found == frame.register_bits.end() && size > 1; --size) {
    if (to.name[size - 1] < '0' || to.name[size - 1] > '9') break;
    found = frame.register_bits.find(to.name.substr(0, size - 1));
  }
  const uint8_t has = formula_[value].bits;
  if (found == frame.register_bits.end() || found->second <= has) return value;
  return formula_.Make(FormulaOp::kExtend, found->second, is_signed, {value});
}

NodeId KernelWalk::ReadRegister(Frame& frame, const Operand& operand) {
  const RegisterId reg = frame.body.RegisterOf(frame.index, operand);
  if (reg == kNoRegister || frame.registers[reg] == kNoNode) return Unknown(frame, 64);
  const NodeId value = frame.registers[reg];
  if (operand.component != 0) return formula_.Opaque(64, MaskOf(64), {value}, frame.masks[frame.block]);
  return operand.negated ? formula_.Make(FormulaOp::kPredicateNot, 1, false, {Fitted(value, 1, 0)}) : value;
}

NodeId KernelWalk::SpecialRegister(Frame& frame, const Operand& operand) {
  static constexpr std::array<std::string_view, 4> kNames = {"%tid", "%ctaid", "%ntid", "%nctaid"};
  const auto name = std::find(kNames.begin(), kNames.end(), operand.name);
  if (name != kNames.end() && operand.component >= 'x' && operand.component <= 'z') {
    const auto value = static_cast<uint64_t>((name - kNames.begin()) * 3 + (operand.component - 'x'));
    return formula_.Make(FormulaOp::kSpecial, 32, false, {}, value);
  }
  if (operand.name == "%laneid") return formula_.Opaque(32, 31, {}, frame.masks[frame.block]);
  const bool is_wide = operand.name.ends_with("64") || operand.name == "%globaltimer" || operand.name == "%gridid";
  return Unknown(frame, is_wide || operand.component == 0 ? 64 : 32);
}

NodeId KernelWalk::AddressOfSymbol(Frame& frame, std::string_view name, int64_t offset) {
  const NodeId addend = formula_.Constant(static_cast<uint64_t>(offset), 64);
  const auto plus = [&](NodeId base) { return formula_.Make(FormulaOp::kAdd, 64, false, {base, addend}); };
  const auto at = [&](StateSpace space) {
    return formula_.Make(space == StateSpace::kShared ? FormulaOp::kSharedAddress : FormulaOp::kLocalAddress, 64, false,
                         {});
  };
  if (frame.is_kernel)
    for (const KernelParameterSlot& slot : segments_.parameters)
      if (slot.name == name) return plus(formula_.Make(FormulaOp::kParameterAddress, 64, false, {}, slot.offset));
  const Variable* variable = nullptr;
  if (const auto own = frame.variables.find(name); own != frame.variables.end()) variable = own->second;
  if (variable == nullptr)
    if (const auto found = module_variables_.find(name); found != module_variables_.end()) variable = found->second;
  if (variable == nullptr) return Unknown(frame, 64);  // a parameter of a function, or a function
  if (variable->space == StateSpace::kShared || variable->space == StateSpace::kLocal) return plus(at(variable->space));
  if (variable->space != StateSpace::kGlobal && variable->space != StateSpace::kConst) return Unknown(frame, 64);
  const auto [known, is_new] = symbols_.try_emplace(name, static_cast<uint32_t>(segments_.symbols.size()));
  if (is_new)
    segments_.symbols.push_back({std::string(name), variable->SizeBytes(), variable->space == StateSpace::kConst});
  return plus(formula_.Make(FormulaOp::kSymbol, 64, false, {}, known->second));
}

NodeId KernelWalk::Read(Frame& frame, const Operand& operand, uint8_t bits) {
  const uint64_t mask = frame.masks[frame.block];
  switch (operand.kind) {
    case OperandKind::kRegister:
      return Fitted(ReadRegister(frame, operand), bits, mask);
    case OperandKind::kSpecialRegister:
      return Fitted(SpecialRegister(frame, operand), bits, mask);
    case OperandKind::kInteger:
    case OperandKind::kFloat32:
    case OperandKind::kFloat64:
      return formula_.Constant(operand.bits, bits);
    case OperandKind::kSymbol:
      return Fitted(AddressOfSymbol(frame, operand.name, operand.offset), bits, mask);
    default:
      return Unknown(frame, bits);
  }
}

NodeId KernelWalk::GuardOf(Frame& frame) {
  const Guard& guard = frame.body[frame.index].instruction->guard;
  const Operand predicate = {.kind = OperandKind::kRegister, .name = guard.predicate};
  const NodeId value = Fitted(ReadRegister(frame, predicate), 1, frame.masks[frame.block]);
  return guard.is_negated ? formula_.Make(FormulaOp::kPredicateNot, 1, false, {value}) : value;
}

void KernelWalk::Define(Frame& frame, const Operand& operand, NodeId value) {
  if (operand.kind != OperandKind::kRegister) return;
  const RegisterId reg = frame.body.RegisterOf(frame.index, operand);
  if (reg == kNoRegister) return;
  const NodeId old = frame.registers[reg];
  const uint64_t mask = frame.masks[frame.block];
  if (operand.component != 0) {
    value = formula_.Opaque(64, MaskOf(64), {Unknown(frame, 64)}, mask);
  } else if (frame.body[frame.index].instruction->guard.is_present()) {
    if (old == kNoNode) {
      // Only whoever has the same guard will read it, unless nobody knows what is read.
      value = formula_.Opaque(formula_[value].bits, MaskOf(formula_[value].bits), {value, Unknown(frame, 64)}, mask);
    } else if (formula_[old].bits != formula_[value].bits) {
      value = formula_.Opaque(std::max(formula_[old].bits, formula_[value].bits), ~uint64_t{0}, {value, old}, mask);
    } else {
      value = formula_.Make(FormulaOp::kSelect, formula_[value].bits, false, {GuardOf(frame), value, old});
    }
  }
  frame.registers[reg] = value;
}

void KernelWalk::DefineOpaque(Frame& frame, const Operand& operand, const std::vector<NodeId>& origins) {
  if (operand.kind == OperandKind::kRegister) {
    Define(frame, operand, formula_.Opaque(64, MaskOf(64), origins, frame.masks[frame.block]));
  } else if (operand.kind == OperandKind::kVector || operand.kind == OperandKind::kPair) {
    for (const Operand& part : operand.parts) DefineOpaque(frame, part, origins);
  }
}

// All values that the instruction reads but for addresses: where a pointer in its result may come from.
std::vector<NodeId> KernelWalk::Origins(Frame& frame) {
  std::vector<NodeId> origins;
  for (const RegisterId reg : frame.body[frame.index].uses)
    if (frame.registers[reg] != kNoNode) origins.push_back(frame.registers[reg]);
  VisitOperands(frame.body[frame.index].instruction->operands, [&](const Operand& operand) {
    if (operand.kind == OperandKind::kSymbol) origins.push_back(Read(frame, operand, 64));
  });
  return origins;
}

NodeId KernelWalk::Shift(Frame& frame, std::string_view opcode, OperationType type) {
  const auto& operands = frame.body[frame.index].instruction->operands;
  const NodeId a = Read(frame, operands[1], type.bits);
  const NodeId amount = Read(frame, operands[2], 32);
  const bool is_left = opcode == "shl";
  if (is_left && formula_.IsConstant(amount)) {
    const uint64_t by = formula_[amount].value;
    if (by >= type.bits) return formula_.Constant(0, type.bits);
    return formula_.Make(FormulaOp::kMultiply, type.bits, false, {a, formula_.Constant(uint64_t{1} << by, type.bits)});
  }
  return formula_.Make(is_left ? FormulaOp::kShiftLeft : FormulaOp::kShiftRight, type.bits, type.is_signed,
                       {a, amount});
}

// add sub mul mad and their kin, without carries; kNoNode: not one of them.
NodeId KernelWalk::Arithmetic(Frame& frame, std::string_view opcode, OperationType type) {
  const Instruction& instruction = *frame.body[frame.index].instruction;
  const auto& operands = instruction.operands;
  const auto read = [&](size_t k, uint8_t bits) { return Read(frame, operands[k], bits); };
  const auto make = [&](FormulaOp op, NodeId a, NodeId b) {
    return formula_.Make(op, type.bits, type.is_signed, {a, b});
  };
  if (!type.is_integer || type.bits < 16 || type.bits > 64 || instruction.HasModifier("sat") ||
      instruction.HasModifier("cc"))
    return kNoNode;
  const uint8_t bits = type.bits;
  const size_t count = operands.size();
  static constexpr std::array<std::pair<std::string_view, FormulaOp>, 9> kPlain = {{{"add", FormulaOp::kAdd},
                                                                                    {"sub", FormulaOp::kSubtract},
                                                                                    {"and", FormulaOp::kAnd},
                                                                                    {"or", FormulaOp::kOr},
                                                                                    {"xor", FormulaOp::kXor},
                                                                                    {"min", FormulaOp::kMinimum},
                                                                                    {"max", FormulaOp::kMaximum},
                                                                                    {"div", FormulaOp::kDivide},
                                                                                    {"rem", FormulaOp::kRemainder}}};
  for (const auto& [name, op] : kPlain) {
    if (opcode != name || count != 3) continue;
    if (instruction.HasModifier("relu")) return kNoNode;
    // Of signs, sums know nothing: the same sum is one node.
    const bool has_sign = op == FormulaOp::kMinimum || op == FormulaOp::kMaximum || op == FormulaOp::kDivide ||
                          op == FormulaOp::kRemainder;
    return formula_.Make(op, bits, has_sign && type.is_signed, {read(1, bits), read(2, bits)});
  }
  if ((opcode == "shl" || opcode == "shr") && count == 3) return Shift(frame, opcode, type);
  if (opcode == "not" && count == 2)
    return formula_.Make(FormulaOp::kSubtract, bits, false, {formula_.Constant(~uint64_t{0}, bits), read(1, bits)});
  if (opcode == "neg" && count == 2)
    return formula_.Make(FormulaOp::kSubtract, bits, false, {formula_.Constant(0, bits), read(1, bits)});
  if (opcode == "selp" && count == 4)
    return formula_.Make(FormulaOp::kSelect, bits, false, {read(3, 1), read(1, bits), read(2, bits)});
  if ((opcode == "mul" || opcode == "mad") && count == (opcode == "mul" ? 3u : 4u)) {
    NodeId product = kNoNode;
    uint8_t wide = bits;
    if (instruction.HasModifier("wide")) {
      if (bits > 32) return kNoNode;
      wide = static_cast<uint8_t>(bits * 2);
      const auto extended = [&](size_t k) {
        if (operands[k].kind == OperandKind::kInteger) {
          uint64_t value = operands[k].bits & MaskOf(bits);
          if (type.is_signed && (value >> (bits - 1)) != 0) value |= ~MaskOf(bits);
          return formula_.Constant(value, wide);
        }
        return formula_.Make(FormulaOp::kExtend, wide, type.is_signed, {read(k, bits)});
      };
      product = formula_.Make(FormulaOp::kMultiply, wide, false, {extended(1), extended(2)});
    } else if (instruction.HasModifier("hi")) {
      product = make(FormulaOp::kMultiplyHigh, read(1, bits), read(2, bits));
    } else if (instruction.HasModifier("lo")) {
      product = formula_.Make(FormulaOp::kMultiply, bits, false, {read(1, bits), read(2, bits)});
    } else {
      return kNoNode;
    }
    if (opcode == "mul") return product;
    return formula_.Make(FormulaOp::kAdd, wide, false, {product, read(3, wide)});
  }
  if (opcode == "bfe" && count == 4 && !type.is_signed && operands[2].kind == OperandKind::kInteger &&
      operands[3].kind == OperandKind::kInteger) {
    const uint64_t length = std::min<uint64_t>(operands[3].bits & 0xff, bits);
    const NodeId shifted = make(FormulaOp::kShiftRight, read(1, bits), formula_.Constant(operands[2].bits & 0xff, 32));
    return formula_.Make(FormulaOp::kAnd, bits, false,
                         {shifted, formula_.Constant(MaskOf(static_cast<uint32_t>(length)), bits)});
  }
  return kNoNode;
}

NodeId KernelWalk::Converted(Frame& frame) {
  const Instruction& cvt = *frame.body[frame.index].instruction;
  const OperationType to = TypeOf(cvt, 1), from = TypeOf(cvt, 0);
  const bool is_followed = cvt.operands.size() == 2 && to.is_integer && from.is_integer && to.bits > 1 &&
                           from.bits > 1 && !cvt.HasModifier("sat") && !cvt.HasModifier("pack");
  if (!is_followed) return kNoNode;
  NodeId value = Read(frame, cvt.operands[1], from.bits);
  if (to.bits > from.bits) value = formula_.Make(FormulaOp::kExtend, to.bits, from.is_signed, {value});
  if (to.bits < from.bits) value = formula_.Make(FormulaOp::kTruncate, to.bits, false, {value});
  // Registers are at least 16 bits wide: what was cut is extended again by the destination's sign.
  return Widened(frame, cvt.operands[0], value, to.is_signed);
}

// mov in all its forms; two halves become one register, and the other way round. kNoNode: done, or not followed.
NodeId KernelWalk::Moved(Frame& frame, OperationType type) {
  const auto& operands = frame.body[frame.index].instruction->operands;
  if (operands.size() != 2 || type.bits == 0) return kNoNode;
  const Operand& to = operands[0];
  const Operand& from = operands[1];
  if (to.kind == OperandKind::kVector) {
    const bool are_halves = type.bits == 64 && to.parts.size() == 2 && from.kind != OperandKind::kVector;
    if (!are_halves) {
      DefineOpaque(frame, to, Origins(frame));
      return kNoNode;
    }
    const NodeId whole = Read(frame, from, 64);
    const NodeId high = formula_.Make(FormulaOp::kShiftRight, 64, false, {whole, formula_.Constant(32, 32)});
    const NodeId low_half = formula_.Make(FormulaOp::kTruncate, 32, false, {whole});
    const NodeId high_half = formula_.Make(FormulaOp::kTruncate, 32, false, {high});
    Define(frame, to.parts[0], low_half);
    Define(frame, to.parts[1], high_half);
    return kNoNode;
  }
  if (from.kind == OperandKind::kVector) {
    if (type.bits != 64 || from.parts.size() != 2)
      return formula_.Opaque(type.bits, MaskOf(type.bits), {Unknown(frame, 64)}, frame.masks[frame.block]);
    return formula_.Make(FormulaOp::kPack, 64, false, {Read(frame, from.parts[0], 32), Read(frame, from.parts[1], 32)});
  }
  return Read(frame, from, type.bits);
}

void KernelWalk::Compare(Frame& frame) {
  const Instruction& setp = *frame.body[frame.index].instruction;
  const OperationType type = TypeOf(setp);
  static constexpr std::array<std::pair<std::string_view, Comparison>, 10> kComparisons = {
      {{"eq", Comparison::kEqual},
       {"ne", Comparison::kNotEqual},
       {"lt", Comparison::kLess},
       {"le", Comparison::kLessOrEqual},
       {"gt", Comparison::kGreater},
       {"ge", Comparison::kGreaterOrEqual},
       {"lo", Comparison::kLess},
       {"ls", Comparison::kLessOrEqual},
       {"hi", Comparison::kGreater},
       {"hs", Comparison::kGreaterOrEqual}}};
  const auto* found = setp.modifiers.empty()
                          ? kComparisons.end()
                          : std::find_if(kComparisons.begin(), kComparisons.end(),
                                         [&](const auto& row) { return row.first == setp.modifiers[0]; });
  const bool is_followed = found != kComparisons.end() && type.is_integer && type.bits >= 16 && type.bits <= 64 &&
                           setp.operands.size() >= 3 && setp.operands[0].kind == OperandKind::kRegister;
  if (!is_followed) return DefineOpaque(frame, setp.operands[0], {});
  const NodeId a = Read(frame, setp.operands[1], type.bits), b = Read(frame, setp.operands[2], type.bits);
  NodeId result = formula_.Make(FormulaOp::kCompare, 1, type.is_signed, {a, b}, static_cast<uint64_t>(found->second));
  if (setp.operands.size() > 3) {
    const NodeId other = Read(frame, setp.operands[3], 1);
    if (setp.HasModifier("and")) {
      result = formula_.Make(FormulaOp::kPredicateAnd, 1, false, {result, other});
    } else if (setp.HasModifier("or")) {
      result = formula_.Make(FormulaOp::kPredicateOr, 1, false, {result, other});
    } else {
      result = Unknown(frame, 1);
    }
  }
  Define(frame, setp.operands[0], result);
}

NodeId KernelWalk::Predicate(Frame& frame, std::string_view opcode) {
  const auto& operands = frame.body[frame.index].instruction->operands;
  if (opcode == "not" && operands.size() == 2)
    return formula_.Make(FormulaOp::kPredicateNot, 1, false, {Read(frame, operands[1], 1)});
  if (opcode == "mov" && operands.size() == 2) return Read(frame, operands[1], 1);
  if ((opcode == "and" || opcode == "or") && operands.size() == 3)
    return formula_.Make(opcode == "and" ? FormulaOp::kPredicateAnd : FormulaOp::kPredicateOr, 1, false,
                         {Read(frame, operands[1], 1), Read(frame, operands[2], 1)});
  return Unknown(frame, 1);
}

NodeId KernelWalk::ValueOf(Frame& frame) {
  const Instruction& instruction = *frame.body[frame.index].instruction;
  const std::string_view opcode = instruction.opcode;
  const OperationType type = TypeOf(instruction);
  if (type.bits == 1) return Predicate(frame, opcode);
  if (opcode == "cvt") return Converted(frame);
  if (opcode == "cvta" && instruction.operands.size() == 2) return Read(frame, instruction.operands[1], 64);
  if (opcode == "mov") return Moved(frame, type);
  if (const NodeId value = Arithmetic(frame, opcode, type); value != kNoNode) return value;
  const auto most = [&](uint64_t value) { return formula_.Opaque(32, value, {}, frame.masks[frame.block]); };
  if (opcode == "popc" || opcode == "clz") return most(64);
  return kNoNode;
}

void KernelWalk::Walk(Frame& frame) {
  const Instruction& instruction = *frame.body[frame.index].instruction;
  const std::string_view opcode = instruction.opcode;
  if (opcode == "ret") return Return(frame);
  if (EndsBasicBlock(instruction)) return;
  if (opcode == "call") return Call(frame);
  if (WalkMemory(frame)) return;
  if (instruction.operands.empty()) return;
  if (opcode == "setp") return Compare(frame);
  const Operand& to = instruction.operands[0];
  const NodeId value = ValueOf(frame);
  const bool is_done = opcode == "mov" && to.kind == OperandKind::kVector;
  if (is_done) return;
  if (value != kNoNode && to.kind == OperandKind::kRegister) {
    Define(frame, to, value);
  } else if (!frame.body[frame.index].defines.empty()) {
    DefineOpaque(frame, to, Origins(frame));
    // Whatever else it may write (a second destination, the carry).
    for (const RegisterId reg : frame.body[frame.index].defines)
      if (formula_.size() > 0 && reg == kCarryRegister) frame.registers[reg] = Unknown(frame, 32);
  }
}

}  // namespace tally::ptx_transforms
