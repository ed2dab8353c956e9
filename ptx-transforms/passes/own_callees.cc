#include "ptx-transforms/passes/own_callees.h"

#include <fmt/format.h>

#include <unordered_map>

#include "ptx-transforms/passes/edit.h"

namespace tally::ptx_transforms {

void OwnCallees(Variant& variant) {
  if (!variant.functions.empty() || variant.reach.functions.empty()) return;
  Arena& arena = variant.module.arena();
  std::unordered_map<std::string_view, std::string_view> names;
  for (const Function* function : variant.reach.functions) {
    Function& copy = variant.functions.emplace_back(*function);
    copy.name = arena.Keep(fmt::format("{}__{}", variant.final_name, function->name));
    copy.linkage = Linkage::kInternal;
    names.emplace(function->name, copy.name);
  }
  for (const Item& item : variant.module.items())
    if (const auto* alias = std::get_if<Alias>(&item.node))
      if (const auto target = names.find(alias->target); target != names.end())
        names.emplace(alias->name, target->second);
  const auto rename_calls = [&](Function& function) {
    EditStatements(function.body, [&](Statement& statement, std::vector<Statement>& out) {
      auto* instruction = std::get_if<Instruction>(&statement.node);
      if (instruction != nullptr && instruction->opcode == "call") {
        const std::string_view callee = CalleeOf(*instruction);
        const auto own = names.find(callee);
        if (!callee.empty() && own != names.end())
          statement.edited |=
              EditOperands(arena, instruction->operands, [&](const Operand& operand) -> std::optional<Operand> {
                if (operand.kind != OperandKind::kSymbol || operand.name != callee) return std::nullopt;
                return Operand{.kind = OperandKind::kSymbol, .name = own->second};
              });
      }
      out.push_back(std::move(statement));
    });
  };
  for (Function& function : variant.functions) rename_calls(function);
  rename_calls(variant.kernel);
}

}  // namespace tally::ptx_transforms
