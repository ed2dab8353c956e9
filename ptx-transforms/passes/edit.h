// How passes change bodies.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ptx-transforms/syntax/module.h"
#include "ptx-transforms/syntax/snippet.h"

namespace tally::ptx_transforms {

// Rebuilds a body: edit(Statement&, std::vector<Statement>& out) either moves the statement into `out` or puts what
// replaces it there. Goes into nested blocks first, which are then passed to `edit` themselves.
template <typename Edit>
void EditStatements(std::vector<Statement>& statements, Edit&& edit) {
  std::vector<Statement> out;
  out.reserve(statements.size() + 16);
  for (Statement& statement : statements) {
    if (auto* block = std::get_if<Block>(&statement.node)) EditStatements(block->statements, edit);
    edit(statement, out);
  }
  statements = std::move(out);
}

// Replaces operands, nested ones included: replace(const Operand&) returns the new operand or nothing. True if any was.
template <typename Replace>
bool EditOperands(Arena& arena, List<Operand>& operands, Replace&& replace) {
  bool is_edited = false;
  std::vector<Operand> copy(operands.begin(), operands.end());
  for (Operand& operand : copy) {
    if (std::optional<Operand> other = replace(std::as_const(operand))) {
      operand = *other;
      is_edited = true;
    } else if (!operand.parts.empty()) {
      is_edited |= EditOperands(arena, operand.parts, replace);
    }
  }
  if (is_edited) operands = arena.Copy(std::span<const Operand>(copy));
  return is_edited;
}

inline void Append(std::vector<Statement>& to, std::vector<Statement> from) {
  for (Statement& statement : from) to.push_back(std::move(statement));
}

// Puts `statements` into the body behind its leading declarations.
void InsertPrologue(Function& function, std::vector<Statement> statements);

// Appends to the parameters of a kernel or function. `text` as in ParseParameterSnippet.
void AppendParameters(Module& module, Function& function, std::string_view text);

// Where a further parameter of that alignment would lie in the packed parameters of a kernel.
uint64_t NextParameterOffset(const Function& kernel, uint32_t align);

}  // namespace tally::ptx_transforms
