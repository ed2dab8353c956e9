// Module to PTX text: untouched nodes byte for byte, edited and new ones in nvcc's style.
#pragma once

#include <string>

#include "ptx-transforms/syntax/module.h"

namespace tally::ptx_transforms {

// For a Module nobody edited this is exactly its source.
std::string PrintModule(const Module& module);

// One item of a module, its body included, as PrintModule would write it. Need not be in module.items().
std::string PrintItem(const Module& module, const Item& item);

// One node, written afresh whatever its source was; without a line end.
std::string PrintInstruction(const Instruction& instruction);
std::string PrintOperand(const Operand& operand);
std::string PrintStatement(const Statement& statement);
std::string PrintVariable(const Variable& variable);
// Head of a function: everything before { or ;.
std::string PrintFunctionHead(const Function& function);

}  // namespace tally::ptx_transforms
