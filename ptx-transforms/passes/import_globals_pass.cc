#include "ptx-transforms/passes/import_globals_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ptx-transforms/analysis/visit.h"
#include "ptx-transforms/passes/edit.h"
#include "ptx-transforms/passes/own_callees.h"
#include "ptx-transforms/syntax/printer.h"

namespace tally::ptx_transforms {
namespace {

constexpr FeatureRule kRules[] = {
    {Feature::kConstantSpace, "constant-address",
     "handles addresses of the constant space that are not its variables'"},
    {Feature::kTextureReference, "texture-reference", "reads a texture or surface that is bound to its module"},
    {Feature::kIndirectCall, "indirect-call", "calls a function through a pointer, which may be one of another module"},
    {Feature::kUnknownCallee, "unknown-callee", "calls a function that is defined elsewhere"},
    {Feature::kFunctionAddress, "function-address",
     "takes the address of a function, which is another one in a variant"},
};

constexpr size_t kMaxTableEntries = 65536 / sizeof(uint64_t);  // the constant bank

class ImportGlobalsPass : public Pass {
 public:
  std::optional<Refusal> Run(Variant& variant) override;
};

bool IsImportable(const Variable& variable) {
  return (variable.space == StateSpace::kGlobal || variable.space == StateSpace::kConst) && !IsLiteral(variable);
}

// The importable variables of a module by name.
std::unordered_map<std::string_view, const Variable*> ImportableVariables(const Module& module) {
  std::unordered_map<std::string_view, const Variable*> variables;
  for (const Item& item : module.items())
    if (const auto* declaration = std::get_if<VariableDeclaration>(&item.node))
      for (const Variable& variable : declaration->variables)
        if (IsImportable(variable)) variables[variable.name] = &variable;
  return variables;
}

class Import {
 public:
  Import(Variant& variant, std::unordered_map<std::string_view, const Variable*> variables)
      : variant_(variant), variables_(std::move(variables)) {}

  std::optional<Refusal> Check(const Function& function);
  // Checked functions only.
  void Rewrite(Function& function);
  size_t num_used() const { return used_.size(); }

 private:
  bool IsImported(const Operand& operand) const {
    const bool is_name = operand.kind == OperandKind::kSymbol || operand.kind == OperandKind::kSubscript ||
                         (operand.kind == OperandKind::kMemory && operand.base_kind == OperandKind::kSymbol);
    return is_name && variables_.contains(operand.name);
  }
  bool ReadConstantsAsGlobals(Instruction& instruction);

  Variant& variant_;
  std::unordered_map<std::string_view, const Variable*> variables_;
  std::unordered_set<std::string_view> used_;
};

void CollectVariables(const std::vector<Statement>& statements, std::vector<const Variable*>& found) {
  for (const Statement& statement : statements) {
    if (const auto* declaration = std::get_if<VariableDeclaration>(&statement.node)) {
      for (const Variable& variable : declaration->variables) found.push_back(&variable);
    } else if (const auto* block = std::get_if<Block>(&statement.node)) {
      CollectVariables(block->statements, found);
    }
  }
}

std::optional<Refusal> Import::Check(const Function& function) {
  std::vector<const Variable*> local;
  CollectVariables(function.body, local);
  for (const Variable* variable : local)
    if (variable->space == StateSpace::kGlobal || variable->space == StateSpace::kConst)
      return Refusal{"variable-in-function", fmt::format("{} declares {} for itself, which cannot be found by name",
                                                         function.name, variable->name)};
  for (const Variable* variable : local)
    if (variables_.contains(variable->name))
      return Refusal{"hidden-variable",
                     fmt::format("{} in {} hides a variable of the module", variable->name, function.name)};
  std::optional<Refusal> refusal;
  VisitInstructions(function.body, [&](const Statement& statement, const Instruction& instruction) {
    VisitOperands(instruction.operands, [&](const Operand& operand) {
      if (!IsImported(operand)) return;
      used_.insert(operand.name);
      if (operand.kind == OperandKind::kSubscript)
        refusal = Refusal{"subscript", fmt::format("{} at {} names an element of a variable by its index",
                                                   PrintInstruction(instruction), statement.span.position.ToString())};
    });
  });
  return refusal;
}

bool Import::ReadConstantsAsGlobals(Instruction& instruction) {
  if (!instruction.HasModifier("const") || (instruction.opcode != "ld" && instruction.opcode != "cvta")) return false;
  std::vector<std::string_view> modifiers;
  for (const std::string_view modifier : instruction.modifiers) {
    modifiers.push_back(modifier == "const" ? "global" : modifier);
    if (modifier == "const" && instruction.opcode == "ld") modifiers.push_back("nc");
  }
  instruction.modifiers = variant_.module.arena().Copy(std::span<const std::string_view>(modifiers));
  return true;
}

void Import::Rewrite(Function& function) {
  Arena& arena = variant_.module.arena();
  size_t num_registers = 0;
  const auto reg = [&](size_t index) { return variant_.Register(fmt::format("address_{}", index)); };
  EditStatements(function.body, [&](Statement& statement, std::vector<Statement>& out) {
    if (auto* instruction = std::get_if<Instruction>(&statement.node)) {
      size_t num_here = 0;
      std::string loads;
      const auto replace = [&](const Operand& operand) -> std::optional<Operand> {
        if (!IsImported(operand)) return std::nullopt;
        const std::string name = reg(num_here++);
        loads += fmt::format("ld.const.b64 {}, [{}+{}];\n", name, variant_.Symbol("imports"),
                             sizeof(uint64_t) * variant_.imports.IndexOf(*variables_.at(operand.name)));
        Operand other = operand;
        other.name = arena.Keep(name);
        if (operand.kind == OperandKind::kMemory) {
          other.base_kind = OperandKind::kRegister;
        } else {
          other.kind = OperandKind::kRegister;
          other.offset = 0;
          if (operand.offset != 0) loads += fmt::format("add.s64 {0}, {0}, {1};\n", name, operand.offset);
        }
        return other;
      };
      statement.edited |= ReadConstantsAsGlobals(*instruction);
      statement.edited |= EditOperands(arena, instruction->operands, replace);
      num_registers = std::max(num_registers, num_here);
      if (!loads.empty()) Append(out, ParseSnippet(variant_.module, loads));
    }
    out.push_back(std::move(statement));
  });
  std::string registers;
  for (size_t i = 0; i < num_registers; ++i) registers += fmt::format(".reg .b64 {};\n", reg(i));
  InsertPrologue(function, ParseSnippet(variant_.module, registers));
}

std::optional<Refusal> ImportGlobalsPass::Run(Variant& variant) {
  const Features& features = variant.features;
  if (auto refusal = CheckUnderstood(variant, features)) return refusal;
  if (auto refusal = CheckFeatures(features, kRules)) return refusal;
  Import import(variant, ImportableVariables(variant.module));
  if (auto refusal = import.Check(variant.kernel)) return refusal;
  for (const Function* function : variant.reach.functions)
    if (auto refusal = import.Check(*function)) return refusal;
  if (variant.imports.variables().size() + import.num_used() > kMaxTableEntries)
    return Refusal{"too-many-variables", "the table of imported variables would not fit into constant memory"};
  OwnCallees(variant);  // they may read constants through addresses that the kernel hands them
  import.Rewrite(variant.kernel);
  for (Function& function : variant.functions) import.Rewrite(function);
  variant.has_imports = true;
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Pass> MakeImportGlobalsPass() { return std::make_unique<ImportGlobalsPass>(); }

}  // namespace tally::ptx_transforms
