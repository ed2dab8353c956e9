// Parses the operands of instructions.
#pragma once

#include <vector>

#include "ptx-transforms/syntax/ast.h"
#include "ptx-transforms/syntax/constant.h"
#include "ptx-transforms/syntax/register_names.h"

namespace tally::ptx_transforms {

class OperandParser {
 public:
  // All three must outlive the parser.
  OperandParser(TokenStream& tokens, Arena& arena, const RegisterNames& names)
      : tokens_(tokens), arena_(arena), names_(names) {}

  // Operands up to and without the ; of an instruction. `is_call`: ( ) are groups, not constant expressions.
  bool ParseOperands(bool is_call, List<Operand>& operands);

 private:
  bool ParseOperand(bool is_call, Operand& operand);
  bool ParseSimple(bool is_call, Operand& operand);
  bool ParseName(Operand& operand);
  bool ParseComponent(Operand& operand);
  bool ParseSubscript(Operand& operand);
  bool ParseNegated(Operand& operand);
  bool ParseImmediate(Operand& operand);
  bool ParseMemory(Operand& operand);
  bool ParseParts(char close, OperandKind kind, Operand& operand);

  TokenStream& tokens_;
  Arena& arena_;
  const RegisterNames& names_;
  std::vector<Operand> stack_;
};

}  // namespace tally::ptx_transforms
