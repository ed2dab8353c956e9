#include "ptx-transforms/passes/block_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "ptx-transforms/analysis/visit.h"
#include "ptx-transforms/passes/edit.h"
#include "ptx-transforms/passes/own_callees.h"

namespace tally::ptx_transforms {
namespace {

using Masks = std::unordered_map<std::string_view, BlockIndexMask>;  // by name of function

bool IsBlockIndex(const Operand& operand) {
  return operand.kind == OperandKind::kSpecialRegister && (operand.name == "%ctaid" || operand.name == "%nctaid");
}

// What the function reads itself, and what it must hand on to functions of `known`.
BlockIndexMask NeededBy(const Function& function, const Masks& known) {
  BlockIndexMask mask;
  VisitInstructions(function.body, [&](const Statement&, const Instruction& instruction) {
    VisitOperands(instruction.operands, [&](const Operand& operand) {
      if (IsBlockIndex(operand)) mask.Add(operand.name == "%nctaid", operand.component);
    });
    if (instruction.opcode != "call") return;
    if (const auto callee = known.find(CalleeOf(instruction)); callee != known.end()) mask.Add(callee->second);
  });
  return mask;
}

template <typename F>
void ForEach(BlockIndexMask mask, F&& visit) {
  for (const bool is_grid : {false, true})
    for (const char component : {'x', 'y', 'z'})
      if (mask.Has(is_grid, component)) visit(is_grid, component);
}

// Rewrites the reads of one function, and its calls of functions that take the values as parameters.
class Replacement {
 public:
  Replacement(Variant& variant, const Masks& masks) : variant_(variant), masks_(masks) {}

  void In(Function& function);
  // Takes the values from further parameters.
  void TakeParameters(Function& function, BlockIndexMask mask);
  void Declare(Function& function, BlockIndexMask mask);

 private:
  std::string ParameterName(bool is_grid, char component) const {
    return variant_.Symbol(fmt::format("{}_{}", is_grid ? "nctaid" : "ctaid", component));
  }
  void PassArguments(Instruction& call, BlockIndexMask mask, std::vector<Statement>& out);

  Variant& variant_;
  const Masks& masks_;
  uint32_t num_calls_ = 0;
};

void Replacement::In(Function& function) {
  EditStatements(function.body, [&](Statement& statement, std::vector<Statement>& out) {
    if (auto* instruction = std::get_if<Instruction>(&statement.node)) {
      const auto replace = [&](const Operand& operand) -> std::optional<Operand> {
        if (!IsBlockIndex(operand)) return std::nullopt;
        const std::string name = BlockIndexRegister(variant_, operand.name == "%nctaid", operand.component);
        return Operand{.kind = OperandKind::kRegister, .name = variant_.module.arena().Keep(name)};
      };
      statement.edited |= EditOperands(variant_.module.arena(), instruction->operands, replace);
      if (instruction->opcode == "call") {
        const auto callee = masks_.find(CalleeOf(*instruction));
        if (callee != masks_.end() && !callee->second.empty()) {
          PassArguments(*instruction, callee->second, out);
          statement.edited = true;
        }
      }
    }
    out.push_back(std::move(statement));
  });
}

void Replacement::PassArguments(Instruction& call, BlockIndexMask mask, std::vector<Statement>& out) {
  Arena& arena = variant_.module.arena();
  const uint32_t number = num_calls_++;  // variables of one scope need different names
  std::vector<Operand> operands(call.operands.begin(), call.operands.end());
  const auto name = std::find_if(operands.begin(), operands.end(),
                                 [](const Operand& operand) { return operand.kind == OperandKind::kSymbol; });
  auto group = name + 1;
  if (group == operands.end() || group->kind != OperandKind::kGroup) group = operands.insert(group, Operand());
  group->kind = OperandKind::kGroup;
  std::vector<Operand> arguments(group->parts.begin(), group->parts.end());
  std::string text;
  ForEach(mask, [&](bool is_grid, char component) {
    const std::string argument = fmt::format("{}_{}", ParameterName(is_grid, component), number);
    text += fmt::format(".param .b32 {0};\nst.param.b32 [{0}], {1};\n", argument,
                        BlockIndexRegister(variant_, is_grid, component));
    arguments.push_back(Operand{.kind = OperandKind::kSymbol, .name = arena.Keep(argument)});
  });
  group->parts = arena.Copy(std::span<const Operand>(arguments));
  call.operands = arena.Copy(std::span<const Operand>(operands));
  Append(out, ParseSnippet(variant_.module, text));
}

void Replacement::TakeParameters(Function& function, BlockIndexMask mask) {
  std::string parameters;
  std::string loads;
  ForEach(mask, [&](bool is_grid, char component) {
    const std::string name = ParameterName(is_grid, component);
    parameters += fmt::format("{}.param .b32 {}", parameters.empty() ? "" : ", ", name);
    loads += fmt::format("ld.param.b32 {}, [{}];\n", BlockIndexRegister(variant_, is_grid, component), name);
  });
  AppendParameters(variant_.module, function, parameters);
  InsertPrologue(function, ParseSnippet(variant_.module, loads));
}

void Replacement::Declare(Function& function, BlockIndexMask mask) {
  std::string text;
  ForEach(mask, [&](bool is_grid, char component) {
    text += fmt::format(".reg .b32 {};\n", BlockIndexRegister(variant_, is_grid, component));
  });
  InsertPrologue(function, ParseSnippet(variant_.module, text));
}

}  // namespace

std::string BlockIndexRegister(const Variant& variant, bool is_grid, char component) {
  return variant.Register(fmt::format("{}_{}", is_grid ? "nctaid" : "ctaid", component));
}

std::optional<Refusal> ReplaceBlockIndex(Variant& variant, BlockIndexMask& used) {
  const bool is_read_outside = std::any_of(variant.reach.functions.begin(), variant.reach.functions.end(),
                                           [](const Function* function) { return !NeededBy(*function, {}).empty(); });
  Masks masks;
  if (is_read_outside) {
    if (variant.reach.is_recursive) return Refusal{"recursion", "calls itself, and reads the block index on the way"};
    OwnCallees(variant);
    // Callees stand before their callers.
    for (const Function& function : variant.functions) masks[function.name] = NeededBy(function, masks);
  }
  used = NeededBy(variant.kernel, masks);
  if (used.empty()) return std::nullopt;
  Replacement replacement(variant, masks);
  for (Function& function : variant.functions) {
    const BlockIndexMask mask = masks[function.name];
    if (mask.empty()) continue;
    const auto is_register = [](const Variable& variable) { return variable.space == StateSpace::kReg; };
    if (std::any_of(function.parameters.begin(), function.parameters.end(), is_register))
      return Refusal{
          "register-parameters",
          fmt::format("calls {}, which reads the block index and takes arguments in registers", function.name)};
    replacement.In(function);
    replacement.Declare(function, mask);
    replacement.TakeParameters(function, mask);
  }
  replacement.In(variant.kernel);
  replacement.Declare(variant.kernel, used);
  return std::nullopt;
}

}  // namespace tally::ptx_transforms
