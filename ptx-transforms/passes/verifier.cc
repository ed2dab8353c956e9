#include "ptx-transforms/passes/verifier.h"

#include <fmt/format.h>

#include "ptx-transforms/analysis/linear_body.h"
#include "ptx-transforms/analysis/visit.h"
#include "ptx-transforms/passes/assemble.h"
#include "ptx-transforms/syntax/parser.h"
#include "ptx-transforms/syntax/printer.h"

namespace tally::ptx_transforms {
namespace {

std::optional<std::string> CheckNames(const Function& function) {
  const LinearBody body(function);
  if (body.unresolved().empty()) return std::nullopt;
  return fmt::format("{} uses {}, which is not declared, or not once", function.name, body.unresolved().front());
}

std::optional<std::string> CheckBlockIndex(const Function& function) {
  std::optional<std::string> found;
  VisitInstructions(function.body, [&](const Statement& statement, const Instruction& instruction) {
    if (statement.span.empty()) return;  // made by a pass
    VisitOperands(instruction.operands, [&](const Operand& operand) {
      if (operand.kind == OperandKind::kSpecialRegister && (operand.name == "%ctaid" || operand.name == "%nctaid"))
        found = fmt::format("{} still reads {} at {}", function.name, operand.name, statement.span.position.ToString());
    });
  });
  return found;
}

}  // namespace

std::optional<std::string> VerifyVariant(const Variant& variant) {
  const std::string text = VariantText(variant);
  Result<Module> module = ParseModule(text, {.keep_unknown = true});
  if (!module) return "does not parse: " + module.error().message();
  if (PrintModule(*module) != text) return "does not print to itself";
  for (const Item& item : module->items()) {
    const auto* function = std::get_if<Function>(&item.node);
    if (function == nullptr || !function->has_body) continue;
    if (auto problem = CheckNames(*function)) return problem;
  }
  if (!variant.has_slice_parameters && !variant.has_persistent_parameters) return std::nullopt;
  for (const Function& function : variant.functions)
    if (auto problem = CheckBlockIndex(function)) return problem;
  return CheckBlockIndex(variant.kernel);
}

}  // namespace tally::ptx_transforms
