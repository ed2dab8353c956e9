// Parses declarations: registers, variables with initialisers, formal parameters.
#pragma once

#include <string_view>
#include <vector>

#include "ptx-transforms/syntax/ast.h"
#include "ptx-transforms/syntax/constant.h"
#include "ptx-transforms/syntax/list_builder.h"
#include "ptx-transforms/syntax/register_names.h"

namespace tally::ptx_transforms {

class DeclarationParser {
 public:
  // All three must outlive the parser.
  DeclarationParser(TokenStream& tokens, Arena& arena, RegisterNames& names)
      : tokens_(tokens), arena_(arena), names_(names) {}

  // From .reg to ;
  bool ParseRegisters(RegisterDeclaration& declaration);
  // From the token after the linkage to ;
  bool ParseVariables(Linkage linkage, VariableDeclaration& declaration);
  // ( .param .u64 a, .reg .b32 b )
  bool ParseParameters(List<Variable>& parameters);
  // .attribute(.managed, .unified(1, 2)); the current token is .attribute
  bool ParseAttributes(List<std::string_view>& attributes);
  // "a", "b"
  bool ParseStrings(List<std::string_view>& strings);
  // a, b
  bool ParseNames(const char* what, List<std::string_view>& names);

 private:
  bool ParseRegisterName(RegisterDeclaration::Name& name);
  bool ParseSpecifiers(Variable& variable);
  bool ParsePointerAttribute(PointerAttribute& pointer);
  bool ParseAlign(uint32_t& align);
  bool ParseDeclarator(Variable& variable);
  bool ParseInitializer(Initializer& initializer);
  bool ParseInitializerList(Initializer& initializer);
  bool ParseAddress(Initializer& initializer);

  TokenStream& tokens_;
  Arena& arena_;
  RegisterNames& names_;
  std::vector<Variable> variables_;
  std::vector<RegisterDeclaration::Name> register_names_;
  std::vector<Initializer> initializers_;
  std::vector<std::string_view> texts_;
};

}  // namespace tally::ptx_transforms
