#include "ptx-transforms/syntax/declaration_parser.h"

#include <limits>

namespace tally::ptx_transforms {
namespace {

// .v2 .v4 .v8; 0 for anything else.
uint8_t VectorWidthFromName(std::string_view name) {
  if (name.size() != 2 || name[0] != 'v') return 0;
  return name[1] == '2' || name[1] == '4' || name[1] == '8' ? static_cast<uint8_t>(name[1] - '0') : uint8_t{0};
}

}  // namespace

bool DeclarationParser::ParseRegisters(RegisterDeclaration& declaration) {
  tokens_.Advance();
  declaration.vector_width = 1;
  for (; tokens_.current().kind == TokenKind::kDotted; tokens_.Advance()) {
    const std::string_view name = tokens_.DottedName();
    if (const uint8_t width = VectorWidthFromName(name); width != 0) {
      declaration.vector_width = width;
    } else if (declaration.type_name.empty()) {
      declaration.type_name = name;
      declaration.type = ScalarTypeFromName(name);
    } else {
      return tokens_.Fail("the name of a register");
    }
  }
  if (declaration.type_name.empty()) return tokens_.Fail("the type of a register");
  ListBuilder<RegisterDeclaration::Name> list(register_names_);
  do {
    RegisterDeclaration::Name name;
    if (!ParseRegisterName(name)) return false;
    list.Add(name);
  } while (tokens_.Accept(','));
  if (!tokens_.Expect(';', "after the declaration")) return false;
  declaration.names = list.Finish(arena_);
  return true;
}

bool DeclarationParser::ParseRegisterName(RegisterDeclaration::Name& name) {
  if (!tokens_.ExpectIdentifier(name.name, "the name of a register")) return false;
  if (tokens_.Accept('<')) {
    // Not a constant expression: its > would be taken for an operator.
    Constant count;
    if (tokens_.current().kind != TokenKind::kInteger || !ParseIntegerLiteral(tokens_.Text(), count) ||
        count.bits > std::numeric_limits<uint32_t>::max())
      return tokens_.Fail("a number of registers");
    tokens_.Advance();
    name.is_range = true;
    name.count = static_cast<uint32_t>(count.bits);
    if (!tokens_.Expect('>', "after the number of registers")) return false;
  }
  names_.Declare(name.name, name.is_range);
  return true;
}

bool DeclarationParser::ParseVariables(Linkage linkage, VariableDeclaration& declaration) {
  Variable common;
  common.linkage = linkage;
  if (!ParseSpecifiers(common)) return false;
  ListBuilder<Variable> list(variables_);
  do {
    Variable variable = common;
    if (!ParseDeclarator(variable)) return false;
    names_.DeclareVariable(variable.name);
    list.Add(variable);
  } while (tokens_.Accept(','));
  if (!tokens_.Expect(';', "after the declaration")) return false;
  declaration.variables = list.Finish(arena_);
  return true;
}

bool DeclarationParser::ParseParameters(List<Variable>& parameters) {
  if (!tokens_.Expect('(', "before the parameters")) return false;
  if (tokens_.Accept(')')) return true;
  ListBuilder<Variable> list(variables_);
  do {
    Variable variable;
    if (!ParseSpecifiers(variable) || !ParseDeclarator(variable)) return false;
    if (variable.space == StateSpace::kReg) {
      names_.Declare(variable.name, false);
    } else {
      names_.DeclareVariable(variable.name);
    }
    list.Add(variable);
  } while (tokens_.Accept(','));
  if (!tokens_.Expect(')', "after the parameters")) return false;
  parameters = list.Finish(arena_);
  return true;
}

// State space, alignment, type and so on, in any order, up to the name.
bool DeclarationParser::ParseSpecifiers(Variable& variable) {
  while (tokens_.current().kind == TokenKind::kDotted) {
    const std::string_view name = tokens_.DottedName();
    if (const ScalarType type = ScalarTypeFromName(name); type != ScalarType::kNone && variable.type_name.empty()) {
      variable.type = type;
      variable.type_name = name;
      tokens_.Advance();
    } else if (const StateSpace space = StateSpaceFromName(name);
               space != StateSpace::kNone && variable.space == StateSpace::kNone) {
      variable.space = space;
      tokens_.Advance();
    } else if (name == "align") {
      if (!ParseAlign(variable.align)) return false;
    } else if (name == "ptr") {
      if (!ParsePointerAttribute(variable.pointer)) return false;
    } else if (name == "attribute") {
      if (!ParseAttributes(variable.attributes)) return false;
    } else if (const uint8_t width = VectorWidthFromName(name); width != 0) {
      variable.vector_width = width;
      tokens_.Advance();
    } else if (variable.type_name.empty()) {
      variable.type_name = name;  // a type this version does not know
      tokens_.Advance();
    } else {
      return tokens_.Fail("the name of a variable");
    }
  }
  if (variable.space == StateSpace::kNone) return tokens_.Fail("the state space of a variable");
  if (variable.type_name.empty()) return tokens_.Fail("the type of a variable");
  return true;
}

// .ptr [.global] [.align 16]
bool DeclarationParser::ParsePointerAttribute(PointerAttribute& pointer) {
  tokens_.Advance();
  pointer.is_present = true;
  if (tokens_.current().kind == TokenKind::kDotted) {
    pointer.space = StateSpaceFromName(tokens_.DottedName());
    if (pointer.space != StateSpace::kNone) tokens_.Advance();
  }
  return !tokens_.IsDotted("align") || ParseAlign(pointer.align);
}

bool DeclarationParser::ParseAlign(uint32_t& align) {
  tokens_.Advance();
  uint64_t value = 0;
  constexpr const char* kWhat = "an alignment (a power of two)";
  const Token first = tokens_.current();
  if (!ParseCount(tokens_, uint64_t{1} << 31, kWhat, value)) return false;
  if (value == 0 || (value & (value - 1)) != 0) {
    tokens_.RewindTo(first);
    return tokens_.Fail(kWhat);
  }
  align = static_cast<uint32_t>(value);
  return true;
}

bool DeclarationParser::ParseAttributes(List<std::string_view>& attributes) {
  tokens_.Advance();
  if (!tokens_.Expect('(', "after .attribute")) return false;
  ListBuilder<std::string_view> list(texts_);
  do {
    if (tokens_.current().kind != TokenKind::kDotted) return tokens_.Fail("an attribute");
    const Token first = tokens_.current();
    std::string_view text = tokens_.Text();
    tokens_.Advance();
    if (tokens_.Accept('(')) {
      while (!tokens_.current().Is(')')) {
        if (tokens_.current().kind != TokenKind::kInteger && !tokens_.current().Is(','))
          return tokens_.Fail("')' after the numbers of an attribute");
        tokens_.Advance();
      }
      tokens_.Advance();
      text = std::string_view(text.data(), tokens_.consumed_end() - first.begin);
    }
    list.Add(text);
  } while (tokens_.Accept(','));
  if (!tokens_.Expect(')', "after the attributes")) return false;
  attributes = list.Finish(arena_);
  return true;
}

bool DeclarationParser::ParseStrings(List<std::string_view>& strings) {
  ListBuilder<std::string_view> list(texts_);
  do {
    if (tokens_.current().kind != TokenKind::kString) return tokens_.Fail("a string");
    const std::string_view text = tokens_.Text();
    list.Add(text.substr(1, text.size() - 2));
    tokens_.Advance();
  } while (tokens_.Accept(','));
  strings = list.Finish(arena_);
  return true;
}

bool DeclarationParser::ParseNames(const char* what, List<std::string_view>& names) {
  ListBuilder<std::string_view> list(texts_);
  do {
    std::string_view name;
    if (!tokens_.ExpectIdentifier(name, what)) return false;
    list.Add(name);
  } while (tokens_.Accept(','));
  names = list.Finish(arena_);
  return true;
}

// name [dimensions] = initialiser
bool DeclarationParser::ParseDeclarator(Variable& variable) {
  const uint32_t begin = tokens_.current().begin;
  if (!tokens_.ExpectIdentifier(variable.name, "the name of a variable")) return false;
  uint64_t dimensions[8];
  size_t num_dimensions = 0;
  while (tokens_.Accept('[')) {
    if (num_dimensions == std::size(dimensions)) return tokens_.FailWith("an array has more than 8 dimensions");
    uint64_t& dimension = dimensions[num_dimensions++];
    dimension = Variable::kUnspecifiedDimension;
    if (!tokens_.current().Is(']') && !ParseCount(tokens_, Variable::kUnspecifiedDimension - 1, "a size", dimension))
      return false;
    if (!tokens_.Expect(']', "after the size of an array")) return false;
  }
  variable.dimensions = arena_.Copy(std::span<const uint64_t>(dimensions, num_dimensions));
  variable.is_array = num_dimensions != 0;
  if (tokens_.Accept('=')) {
    variable.has_initializer = true;
    if (!ParseInitializer(variable.initializer)) return false;
  }
  variable.range = {begin, tokens_.consumed_end()};
  return true;
}

bool DeclarationParser::ParseInitializer(Initializer& initializer) {
  const Token& token = tokens_.current();
  if (token.Is('{')) return ParseInitializerList(initializer);
  if (token.kind == TokenKind::kIdentifier && tokens_.Text() != "WARP_SZ") return ParseAddress(initializer);
  if (token.kind == TokenKind::kInteger && tokens_.Peek().Is('(')) {
    Constant mask;
    if (!ParseIntegerLiteral(tokens_.Text(), mask)) return tokens_.Fail("a mask");
    tokens_.Advance();
    tokens_.Advance();
    if (!ParseAddress(initializer) || !tokens_.Expect(')', "after the masked address")) return false;
    initializer.kind = Initializer::Kind::kMask;
    initializer.bits = mask.bits;
    return true;
  }
  if (!StartsConstant(tokens_)) return tokens_.Fail("an initial value");
  Constant constant;
  if (!ParseConstant(tokens_, constant)) return false;
  initializer.bits = constant.bits;
  switch (constant.kind) {
    case Constant::Kind::kInteger:
      initializer.kind = Initializer::Kind::kInteger;
      break;
    case Constant::Kind::kFloat32:
      initializer.kind = Initializer::Kind::kFloat32;
      break;
    case Constant::Kind::kFloat64:
      initializer.kind = Initializer::Kind::kFloat64;
      break;
  }
  return true;
}

bool DeclarationParser::ParseInitializerList(Initializer& initializer) {
  const TokenStream::Nesting nesting(tokens_);
  if (!nesting.ok()) return false;
  tokens_.Advance();
  initializer.kind = Initializer::Kind::kList;
  ListBuilder<Initializer> list(initializers_);
  while (!tokens_.current().Is('}')) {
    Initializer element;
    if (!ParseInitializer(element)) return false;
    list.Add(element);
    if (!tokens_.Accept(',')) break;
  }
  if (!tokens_.Expect('}', "after the initial values")) return false;
  initializer.elements = list.Finish(arena_);
  return true;
}

// name, name+8, generic(name), generic(name+8), generic(name)+8
bool DeclarationParser::ParseAddress(Initializer& initializer) {
  initializer.kind = Initializer::Kind::kSymbol;
  if (!tokens_.ExpectIdentifier(initializer.name, "the name of a variable or function")) return false;
  if (initializer.name == "generic" && tokens_.Accept('(')) {
    initializer.is_generic = true;
    if (!tokens_.ExpectIdentifier(initializer.name, "the name of a variable or function") ||
        !ParseOffset(tokens_, initializer.offset) || !tokens_.Expect(')', "after the generic address"))
      return false;
  }
  return ParseOffset(tokens_, initializer.offset);
}

}  // namespace tally::ptx_transforms
