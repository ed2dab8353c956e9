#include "ptx-transforms/analysis/linear_body.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace tally::ptx_transforms {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Instructions whose first operand is read like the others. Of all the rest it is a destination, which is on the safe
// side: nobody relies on a register not being written.
bool HasNoDestination(const Instruction& instruction) {
  static constexpr std::array<std::string_view, 12> kOpcodes = {
      "st", "red", "bra", "brx", "nanosleep", "stackrestore", "ret", "exit", "trap", "setmaxnreg", "pmevent", "brkpt"};
  if (std::find(kOpcodes.begin(), kOpcodes.end(), instruction.opcode) != kOpcodes.end()) return true;
  if (instruction.opcode == "bar" || instruction.opcode == "barrier") return !instruction.HasModifier("red");
  return false;
}

bool WritesCarry(const Instruction& instruction) { return instruction.HasModifier("cc"); }
bool ReadsCarry(const Instruction& instruction) {
  return instruction.opcode == "addc" || instruction.opcode == "subc" || instruction.opcode == "madc";
}

}  // namespace

LinearBody::LinearBody(const Function& function) : function_(function) {
  Scope& outermost = scopes_.emplace_back();
  for (const List<Variable>* variables : {&function.returns, &function.parameters})
    for (const Variable& variable : *variables)
      if (variable.space == StateSpace::kReg) outermost.registers[variable.name] = 1;
  Collect(function.body, 0);
  storage_.reserve(entries_.size() * 3);
  for (uint32_t index = 0; index < entries_.size(); ++index) Resolve(index);
}

void LinearBody::Collect(const std::vector<Statement>& statements, uint32_t scope) {
  for (const Statement& statement : statements) {
    if (std::holds_alternative<Instruction>(statement.node)) {
      entries_.push_back({.statement = &statement, .instruction = &std::get<Instruction>(statement.node)});
      entry_scopes_.push_back(scope);
    } else if (const auto* label = std::get_if<Label>(&statement.node)) {
      const bool is_new = scopes_[scope].labels.try_emplace(label->name, static_cast<uint32_t>(entries_.size())).second;
      if (!is_new) unresolved_.push_back(label->name);
    } else if (const auto* registers = std::get_if<RegisterDeclaration>(&statement.node)) {
      for (const RegisterDeclaration::Name& name : registers->names)
        (name.is_range ? scopes_[scope].ranges : scopes_[scope].registers)[name.name] = name.count;
    } else if (const auto* targets = std::get_if<TargetList>(&statement.node)) {
      scopes_[scope].target_lists.try_emplace(targets->name, targets);
    } else if (const auto* block = std::get_if<Block>(&statement.node)) {
      const auto inner = static_cast<uint32_t>(scopes_.size());
      scopes_.emplace_back().parent = scope;
      Collect(block->statements, inner);
    } else if (const auto* opaque = std::get_if<Opaque>(&statement.node);
               opaque != nullptr && !opaque->reason.empty()) {
      opaque_.push_back(&statement);
    }
  }
}

RegisterId LinearBody::Find(uint32_t scope, std::string_view name, bool may_add) {
  for (;; scope = scopes_[scope].parent) {
    Scope& here = scopes_[scope];
    if (const auto found = here.used.find(name); found != here.used.end()) return found->second;
    bool is_declared = here.registers.contains(name);
    // r<10> declares r0 to r9; t1<5> declares t10 to t14, so every split between digits counts.
    for (size_t size = name.size(); !is_declared && size > 1 && IsDigit(name[size - 1]); --size) {
      const auto range = here.ranges.find(name.substr(0, size - 1));
      if (range == here.ranges.end()) continue;
      uint32_t number = 0;
      const char* end = name.data() + name.size();
      const auto parsed = std::from_chars(name.data() + size - 1, end, number);
      is_declared = parsed.ec == std::errc() && parsed.ptr == end && number < range->second;
    }
    if (is_declared) {
      if (!may_add) return kNoRegister;
      const auto id = static_cast<RegisterId>(num_registers_++);
      here.used.emplace(name, id);
      return id;
    }
    if (scope == 0) return kNoRegister;
  }
}

void LinearBody::AddRegisters(uint32_t scope, const Operand& operand, bool is_inside_address,
                              std::vector<RegisterId>& defines, std::vector<RegisterId>& uses, bool is_destination) {
  const bool is_address = operand.kind == OperandKind::kMemory;
  if (operand.kind == OperandKind::kRegister || (is_address && operand.base_kind == OperandKind::kRegister)) {
    const RegisterId id = Find(scope, operand.name, true);
    if (id == kNoRegister) {
      unresolved_.push_back(operand.name);
    } else {
      const bool is_written = is_destination && !is_address && !is_inside_address;
      (is_written ? defines : uses).push_back(id);
      // One component of a vector register is written: the others stay.
      if (is_written && operand.component != 0) uses.push_back(id);
    }
  }
  const bool is_inside = is_inside_address || is_address || operand.kind == OperandKind::kSubscript;
  for (const Operand& part : operand.parts) AddRegisters(scope, part, is_inside, defines, uses, is_destination);
}

void LinearBody::AddTarget(uint32_t scope, std::string_view label, std::vector<uint32_t>& targets) {
  for (;; scope = scopes_[scope].parent) {
    if (const auto found = scopes_[scope].labels.find(label); found != scopes_[scope].labels.end()) {
      targets.push_back(found->second);
      return;
    }
    if (scope == 0) break;
  }
  unresolved_.push_back(label);
}

void LinearBody::Resolve(uint32_t index) {
  Entry& entry = entries_[index];
  const Instruction& instruction = *entry.instruction;
  const uint32_t scope = entry_scopes_[index];
  std::vector<RegisterId> defines;
  std::vector<RegisterId> uses;
  std::vector<uint32_t> targets;
  if (instruction.guard.is_present()) {
    const RegisterId id = Find(scope, instruction.guard.predicate, true);
    if (id == kNoRegister) {
      unresolved_.push_back(instruction.guard.predicate);
    } else {
      uses.push_back(id);
    }
  }
  const bool is_call = instruction.opcode == "call";
  // call (returned), f, (arguments): without the first group there is no destination.
  const bool has_destination =
      is_call ? !instruction.operands.empty() && instruction.operands[0].kind == OperandKind::kGroup
              : !HasNoDestination(instruction);
  for (size_t i = 0; i < instruction.operands.size(); ++i)
    AddRegisters(scope, instruction.operands[i], false, defines, uses, i == 0 && has_destination);
  if (WritesCarry(instruction)) defines.push_back(kCarryRegister);
  if (ReadsCarry(instruction)) uses.push_back(kCarryRegister);
  // A guarded write keeps the old value where the guard is false; an accumulator operand is named twice anyway, but
  // wgmma reads its destination.
  if (instruction.guard.is_present() || instruction.opcode == "wgmma" || instruction.opcode == "call")
    uses.insert(uses.end(), defines.begin(), defines.end());
  if (instruction.opcode == "bra" && !instruction.operands.empty()) {
    AddTarget(scope, instruction.operands[0].name, targets);
  } else if (instruction.opcode == "brx" && instruction.operands.size() == 2) {
    const TargetList* list = nullptr;
    for (uint32_t s = scope;; s = scopes_[s].parent) {
      const auto found = scopes_[s].target_lists.find(instruction.operands[1].name);
      if (found != scopes_[s].target_lists.end()) list = found->second;
      if (list != nullptr || s == 0) break;
    }
    if (list == nullptr) {
      unresolved_.push_back(instruction.operands[1].name);
    } else {
      for (const std::string_view label : list->targets) AddTarget(scope, label, targets);
    }
  }
  const auto keep = [this](std::vector<uint32_t>& list) -> std::span<const uint32_t> {
    if (list.empty()) return {};
    return storage_.emplace_back(std::move(list));
  };
  entry.defines = keep(defines);
  entry.uses = keep(uses);
  entry.targets = keep(targets);
}

RegisterId LinearBody::RegisterOf(size_t index, const Operand& operand) const {
  if (operand.kind != OperandKind::kRegister &&
      !(operand.kind == OperandKind::kMemory && operand.base_kind == OperandKind::kRegister))
    return kNoRegister;
  return const_cast<LinearBody*>(this)->Find(entry_scopes_[index], operand.name, false);
}

}  // namespace tally::ptx_transforms
