#include "ptx-transforms/passes/edit.h"

#include <algorithm>

namespace tally::ptx_transforms {

void InsertPrologue(Function& function, std::vector<Statement> statements) {
  const auto is_declaration = [](const Statement& statement) {
    return std::holds_alternative<RegisterDeclaration>(statement.node) ||
           std::holds_alternative<VariableDeclaration>(statement.node) ||
           std::holds_alternative<LocDirective>(statement.node);
  };
  const auto place = std::find_if_not(function.body.begin(), function.body.end(), is_declaration);
  function.body.insert(place, std::make_move_iterator(statements.begin()), std::make_move_iterator(statements.end()));
}

void AppendParameters(Module& module, Function& function, std::string_view text) {
  std::vector<Variable> parameters(function.parameters.begin(), function.parameters.end());
  for (const Variable& parameter : ParseParameterSnippet(module, text)) parameters.push_back(parameter);
  function.parameters = module.arena().Copy(std::span<const Variable>(parameters));
}

uint64_t NextParameterOffset(const Function& kernel, uint32_t align) {
  uint64_t offset = 0;
  const auto round_up = [](uint64_t value, uint64_t to) { return (value + to - 1) / to * to; };
  for (const Variable& parameter : kernel.parameters)
    offset = round_up(offset, parameter.Alignment()) + parameter.SizeBytes();
  return round_up(offset, align);
}

}  // namespace tally::ptx_transforms
