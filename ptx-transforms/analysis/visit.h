// Walks over statements and operands, nested ones included.
#pragma once

#include <utility>
#include <vector>

#include "ptx-transforms/syntax/ast.h"

namespace tally::ptx_transforms {

// visit(const Statement&, const Instruction&), in the order of the text.
template <typename Visit>
void VisitInstructions(const std::vector<Statement>& statements, Visit&& visit) {
  for (const Statement& statement : statements) {
    if (const auto* instruction = std::get_if<Instruction>(&statement.node)) {
      visit(statement, *instruction);
    } else if (const auto* block = std::get_if<Block>(&statement.node)) {
      VisitInstructions(block->statements, visit);
    }
  }
}

// visit(const Operand&), outer ones before their parts.
template <typename Visit>
void VisitOperands(const List<Operand>& operands, Visit&& visit) {
  for (const Operand& operand : operands) {
    visit(operand);
    VisitOperands(operand.parts, visit);
  }
}

}  // namespace tally::ptx_transforms
