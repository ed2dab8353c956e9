// Text of single nodes, written afresh. Internal to syntax: include printer.h.
#pragma once

#include <string>

#include "ptx-transforms/syntax/ast.h"

namespace tally::ptx_transforms {

// Each appends to `out`, without a line end.
void AddOperand(std::string& out, const Operand& operand);
void AddInstruction(std::string& out, const Instruction& instruction);
void AddVariable(std::string& out, const Variable& variable);
// Everything before { or ;
void AddFunctionHead(std::string& out, const Function& function);
// Nothing for an Opaque, which has no text but its source.
void AddStatementText(std::string& out, const Statement& statement);
// Of a Function: its head, and the ; of one without a body.
void AddItemText(std::string& out, const Item& item);

}  // namespace tally::ptx_transforms
