#include "ptx-transforms/passes/block_index.h"

#include <fmt/format.h>

#include "ptx-transforms/analysis/visit.h"
#include "ptx-transforms/passes/edit.h"

namespace tally::ptx_transforms {
namespace {

bool IsBlockIndex(const Operand& operand) {
  return operand.kind == OperandKind::kSpecialRegister && (operand.name == "%ctaid" || operand.name == "%nctaid");
}

BlockIndexMask ReadBy(const Function& function) {
  BlockIndexMask mask;
  VisitInstructions(function.body, [&](const Statement&, const Instruction& instruction) {
    VisitOperands(instruction.operands, [&](const Operand& operand) {
      if (IsBlockIndex(operand)) mask.Add(operand.name == "%nctaid", operand.component);
    });
  });
  return mask;
}

void ReplaceIn(Variant& variant, Function& function) {
  EditStatements(function.body, [&](Statement& statement, std::vector<Statement>& out) {
    if (auto* instruction = std::get_if<Instruction>(&statement.node)) {
      const bool is_edited = EditOperands(
          variant.module.arena(), instruction->operands, [&](const Operand& operand) -> std::optional<Operand> {
            if (!IsBlockIndex(operand)) return std::nullopt;
            const std::string name = BlockIndexRegister(variant, operand.name == "%nctaid", operand.component);
            return Operand{.kind = OperandKind::kRegister, .name = variant.module.arena().Keep(name)};
          });
      statement.edited |= is_edited;
    }
    out.push_back(std::move(statement));
  });
}

}  // namespace

std::string BlockIndexRegister(const Variant& variant, bool is_grid, char component) {
  return variant.Register(fmt::format("{}_{}", is_grid ? "nctaid" : "ctaid", component));
}

std::optional<Refusal> ReplaceBlockIndex(Variant& variant, BlockIndexMask& used) {
  for (const Function* function : variant.reach.functions)
    if (!ReadBy(*function).empty())
      return Refusal{"function-reads-index", fmt::format("calls {}, which reads the block index", function->name)};
  used = ReadBy(variant.kernel);
  if (used.empty()) return std::nullopt;
  ReplaceIn(variant, variant.kernel);
  std::string text;
  for (const bool is_grid : {false, true})
    for (const char component : {'x', 'y', 'z'})
      if (used.Has(is_grid, component))
        text += fmt::format(".reg .b32 {};\n", BlockIndexRegister(variant, is_grid, component));
  InsertPrologue(variant.kernel, ParseSnippet(variant.module, text));
  return std::nullopt;
}

}  // namespace tally::ptx_transforms
