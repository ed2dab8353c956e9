// Declarations and statements of a function, in their order.
#include "sim-driver/engine/lowering.h"
#include "sim-driver/engine/opcode_table.h"
#include "sim-driver/engine/operations.h"
#include "sim-driver/engine/text.h"

namespace tally::sim_driver {

void Lowering::DeclareRegisters(const ptx::RegisterDeclaration& declaration) {
  uint32_t width = TypeBytes(declaration.type);
  if (declaration.type == ScalarType::kNone || declaration.vector_width != 1) {
    Unsupported(Format("registers of type {}", declaration.type_name));
    width = 4;
  }
  for (const auto& name : declaration.names) {
    if (!name.is_range) {
      scopes_.back().registers[name.name] = NewRegister(width);
      continue;
    }
    if (classes.size() + name.count > kMaxRegisters) {
      Invalid("too many registers");
      return;
    }
    scopes_.back().ranges[name.name] = {name.count, static_cast<uint32_t>(classes.size()), static_cast<uint8_t>(width)};
    classes.resize(classes.size() + name.count, static_cast<uint8_t>(width));
  }
}

void Lowering::DeclareVariables(const ptx::VariableDeclaration& declaration) {
  for (const ptx::Variable& v : declaration.variables) {
    Variable variable{.space = v.space};
    uint64_t size = v.SizeBytes();
    switch (v.space) {
      case StateSpace::kLocal:
        variable.offset = AllocateLocal(size, v.Alignment());
        break;
      case StateSpace::kParam:
        variable.offset = AllocateParameter(size, v.Alignment());
        variable.size = static_cast<uint32_t>(size);
        break;
      case StateSpace::kShared:
        if (v.linkage != ptx::Linkage::kExtern) variable.shared = &v;
        break;
      case StateSpace::kReg: {
        scopes_.back().registers[v.name] = NewRegister(TypeBytes(v.type));
        continue;
      }
      default:
        Unsupported(Format(".{} variables inside functions", ptx::StateSpaceName(v.space)));
    }
    scopes_.back().variables[v.name] = variable;
  }
}

void Lowering::DeclareFormals() {
  auto declare = [&](const ptx::Variable& v, std::vector<FormalSlot>& slots, bool is_return) {
    uint32_t size = static_cast<uint32_t>(std::min<uint64_t>(v.SizeBytes(), kMaxAreaBytes + 1));
    uint32_t width = TypeBytes(v.type);
    if (v.space == StateSpace::kReg) size = std::max(width, 4u);
    uint32_t offset = AllocateParameter(size, std::max(v.Alignment(), 4u));
    slots.push_back({offset, size});
    if (v.space != StateSpace::kReg) {
      scopes_.back().variables[v.name] = {.space = StateSpace::kParam, .offset = offset, .size = size};
      return;
    }
    uint32_t reg = NewRegister(width);
    scopes_.back().registers[v.name] = reg;
    if (is_return) {
      register_returns_.push_back(kRegisterTag | reg);
    } else {
      EmitFrameParameterLoad(*this, kRegisterTag | reg, offset, width);
    }
  };
  if (is_kernel_) {
    uint64_t offset = 0;
    for (const ptx::Variable& v : function_.parameters) {
      uint32_t align = std::max(1u, v.Alignment());
      offset = (offset + align - 1) / align * align;
      uint64_t size = v.SizeBytes();
      if (offset + size > 32764) {
        Invalid("more than 32764 bytes of kernel parameters");
        return;
      }
      kernel_parameters_[v.name] = {static_cast<uint32_t>(offset), static_cast<uint32_t>(size), true};
      parameters.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(size)});
      offset += size;
    }
    return;
  }
  for (const ptx::Variable& v : function_.returns) declare(v, returns, true);
  for (const ptx::Variable& v : function_.parameters) declare(v, parameters, false);
}

void Lowering::LowerBody() {
  scopes_.emplace_back();
  sources.push_back({text_index_, 0, 0, function_.open.position.line});
  DeclareFormals();
  LowerStatements(function_.body);
  source_ = static_cast<uint32_t>(sources.size());
  sources.push_back({text_index_, function_.close.begin, function_.close.end, function_.close.position.line});
  Emit(&OpEndOfFunction).ends_block = true;
  for (int32_t position : label_positions)
    if (position < 0) Invalid("a label is used but not defined");
}

void Lowering::LowerStatements(const std::vector<ptx::Statement>& statements) {
  for (const ptx::Statement& statement : statements) {  // labels may be used before they are defined
    if (const auto* label = std::get_if<ptx::Label>(&statement.node)) {
      auto [slot, is_new] = scopes_.back().labels.try_emplace(label->name, -1);
      if (is_new) slot->second = NewLabel();
    } else if (const auto* prototype = std::get_if<ptx::CallPrototype>(&statement.node)) {
      scopes_.back().prototypes[prototype->name] = prototype;
    } else if (const auto* targets = std::get_if<ptx::TargetList>(&statement.node)) {
      scopes_.back().targets[targets->name] = targets;
    }
  }
  for (const ptx::Statement& statement : statements) {
    if (!invalid.empty()) return;
    if (const auto* instruction = std::get_if<ptx::Instruction>(&statement.node)) {
      LowerInstruction(statement, *instruction);
    } else if (const auto* label = std::get_if<ptx::Label>(&statement.node)) {
      source_ = static_cast<uint32_t>(sources.size());
      sources.push_back({text_index_, statement.span.begin, statement.span.end, statement.span.position.line});
      PlaceLabel(scopes_.back().labels[label->name]);
    } else if (const auto* registers = std::get_if<ptx::RegisterDeclaration>(&statement.node)) {
      DeclareRegisters(*registers);
    } else if (const auto* variables = std::get_if<ptx::VariableDeclaration>(&statement.node)) {
      DeclareVariables(*variables);
    } else if (const auto* block = std::get_if<ptx::Block>(&statement.node)) {
      uint32_t top = parameter_top_;
      scopes_.emplace_back();
      LowerStatements(block->statements);
      scopes_.pop_back();
      parameter_top_ = top;  // the parameters of a call end with its block
    } else if (const auto* opaque = std::get_if<ptx::Opaque>(&statement.node)) {
      if (!opaque->reason.empty()) Invalid(Format("not understood: {}", opaque->reason));
    }
  }
}

void Lowering::LowerInstruction(const ptx::Statement& statement, const ptx::Instruction& instruction) {
  instruction_ = &instruction;
  source_ = static_cast<uint32_t>(sources.size());
  sources.push_back({text_index_, statement.span.begin, statement.span.end, statement.span.position.line});
  const Opcode* opcode = FindOpcode(instruction.opcode);
  if (opcode == nullptr) {
    std::string name(instruction.opcode);
    for (std::string_view modifier : instruction.modifiers) name += Format(".{}", modifier);
    Unsupported(name);
    return;
  }
  VirtualOperand guard = kNoOperand;
  uint32_t negated = instruction.guard.is_negated ? kFullMask : 0;
  if (instruction.guard.is_present()) {
    auto found = FindRegister(instruction.guard.predicate);
    if (!found || classes[*found] != kPredicateClass) {
      Invalid(Format("{} is not a predicate", instruction.guard.predicate));
      return;
    }
    guard = kRegisterTag | *found;
  }
  if (instruction.opcode == "bra" && num_operands() == 1) {
    EmitBranch(LabelNamed(operand(0).name), guard, negated != 0);
    return;
  }
  int32_t around = -1;
  if (guard != kNoOperand && opcode->branches_around) {
    around = NewLabel();
    EmitBranch(around, guard, negated == 0);
  }
  size_t first = instructions.size();
  const bool was_supported = unsupported.empty();
  const bool decoded = opcode->decode(*this);
  if (was_supported && (!decoded || !unsupported.empty()) && invalid.empty()) {
    // A form that is not ours may still be PTX; a name that nothing declares is not.
    for (size_t i = 0; i < num_operands(); ++i) {
      const ptx::Operand& named = operand(i);
      const bool is_name = named.kind == ptx::OperandKind::kSymbol || named.kind == ptx::OperandKind::kRegister;
      if (!is_name || !named.name.starts_with('%') || FindRegister(named.name)) continue;
      Invalid(Format("unknown register {}", named.name));
      return;
    }
  }
  if (!decoded && invalid.empty() && unsupported.empty()) {
    std::string name(instruction.opcode);
    for (std::string_view modifier : instruction.modifiers) name += Format(".{}", modifier);
    Unsupported(name);
  }
  if (guard == kNoOperand) return;
  if (around >= 0) {
    PlaceLabel(around);
    return;
  }
  // Every step of it runs for the lanes of the guard only.
  std::vector<LoweredInstruction> steps(std::make_move_iterator(instructions.begin() + static_cast<ptrdiff_t>(first)),
                                        std::make_move_iterator(instructions.end()));
  instructions.resize(first);
  // A step may overwrite the guard itself: keep a copy then.
  if (steps.size() > 1) {
    VirtualOperand copy = Temporary(kPredicateClass);
    Emit(MoveOp(kPredicateClass), copy, guard);
    guard = copy;
  }
  for (LoweredInstruction& step : steps) {
    LoweredInstruction& test = Emit(&OpGuard, kNoOperand, guard);
    test.i.x = negated;
    test.is_guard = true;
    step.is_guarded = true;
    instructions.push_back(std::move(step));
  }
}

}  // namespace tally::sim_driver
