// Parses the statements of function bodies.
#pragma once

#include <string_view>
#include <vector>

#include "ptx-transforms/syntax/ast.h"
#include "ptx-transforms/syntax/declaration_parser.h"
#include "ptx-transforms/syntax/operand_parser.h"
#include "ptx-transforms/syntax/recovery.h"

namespace tally::ptx_transforms {

class BodyParser {
 public:
  // All must outlive the parser.
  BodyParser(TokenStream& tokens, Arena& arena, RegisterNames& names, DeclarationParser& declarations,
             Recovery& recovery)
      : tokens_(tokens),
        arena_(arena),
        names_(names),
        declarations_(declarations),
        recovery_(recovery),
        operands_(tokens, arena, names) {}

  // From { to }. Statements that fail are dealt with here (Recovery); false: the end is missing, or too many errors.
  bool ParseBody(std::vector<Statement>& statements, SourceSpan& open, SourceSpan& close);

 private:
  bool ParseStatement(Statement& statement);
  bool ParseNamed(Statement& statement);
  bool ParseDirective(Statement& statement);
  bool ParseInstruction(Instruction& instruction);
  bool ParseLoc(LocDirective& loc);
  bool ParsePrototype(CallPrototype& prototype);
  bool ParseTargets(TargetList& targets);

  TokenStream& tokens_;
  Arena& arena_;
  RegisterNames& names_;
  DeclarationParser& declarations_;
  Recovery& recovery_;
  OperandParser operands_;
  std::vector<std::string_view> modifiers_;
};

// The linkage that the current token names, consumed; kInternal if it names none.
Linkage ParseLinkage(TokenStream& tokens);

}  // namespace tally::ptx_transforms
