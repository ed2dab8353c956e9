#include "ptx-transforms/syntax/body_parser.h"

#include <limits>

namespace tally::ptx_transforms {
namespace {

// Names declared inside are forgotten at the end.
class Scope {
 public:
  explicit Scope(RegisterNames& names) : names_(names) { names_.OpenScope(); }
  ~Scope() { names_.CloseScope(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  RegisterNames& names_;
};

bool ParseUint32(TokenStream& tokens, const char* what, uint32_t& value) {
  Constant constant;
  if (tokens.current().kind != TokenKind::kInteger || !ParseIntegerLiteral(tokens.Text(), constant) ||
      constant.bits > std::numeric_limits<uint32_t>::max())
    return tokens.Fail(what);
  tokens.Advance();
  value = static_cast<uint32_t>(constant.bits);
  return true;
}

}  // namespace

Linkage ParseLinkage(TokenStream& tokens) {
  for (const Linkage linkage : {Linkage::kVisible, Linkage::kExtern, Linkage::kWeak, Linkage::kCommon}) {
    if (!tokens.IsDotted(LinkageName(linkage))) continue;
    tokens.Advance();
    return linkage;
  }
  return Linkage::kInternal;
}

bool BodyParser::ParseBody(std::vector<Statement>& statements, SourceSpan& open, SourceSpan& close) {
  const TokenStream::Nesting nesting(tokens_);
  if (!nesting.ok()) return false;
  const Scope scope(names_);
  open = tokens_.current().span();
  if (!tokens_.Expect('{', "before a body")) return false;
  while (!tokens_.current().Is('}')) {
    if (tokens_.current().kind == TokenKind::kEnd) return tokens_.Fail("'}' after the body");
    const Token start = tokens_.current();
    Statement& statement = statements.emplace_back();
    statement.span = start.span();
    if (ParseStatement(statement)) {
      if (!std::holds_alternative<Block>(statement.node)) statement.span.end = tokens_.consumed_end();
      continue;
    }
    // A block deals with its own statements; what remains is a missing end, too deep nesting or too many errors.
    if (std::holds_alternative<Block>(statement.node)) return false;
    if (recovery_.KeepOpaque(start, start.kind == TokenKind::kDotted, statement.node.emplace<Opaque>())) {
      statement.span.end = tokens_.consumed_end();
      continue;
    }
    statements.pop_back();
    if (recovery_.should_stop()) return false;
  }
  close = tokens_.current().span();
  tokens_.Advance();
  return true;
}

bool BodyParser::ParseStatement(Statement& statement) {
  const Token& token = tokens_.current();
  if (token.kind == TokenKind::kIdentifier) return ParseNamed(statement);
  if (token.kind == TokenKind::kDotted) return ParseDirective(statement);
  if (token.Is('@')) return ParseInstruction(statement.node.emplace<Instruction>());
  if (token.Is('{')) {
    auto& block = statement.node.emplace<Block>();
    if (!ParseBody(block.statements, block.open, block.close)) return false;
    statement.span = block.open;
    return true;
  }
  return tokens_.Fail("a statement");
}

bool BodyParser::ParseNamed(Statement& statement) {
  if (!tokens_.Peek().Is(':')) return ParseInstruction(statement.node.emplace<Instruction>());
  const std::string_view name = tokens_.Text();
  tokens_.Advance();
  tokens_.Advance();
  if (tokens_.IsDotted("callprototype")) {
    auto& prototype = statement.node.emplace<CallPrototype>();
    prototype.name = name;
    return ParsePrototype(prototype);
  }
  const bool is_call = tokens_.IsDotted("calltargets");
  if (is_call || tokens_.IsDotted("branchtargets")) {
    auto& targets = statement.node.emplace<TargetList>();
    targets.name = name;
    targets.is_call = is_call;
    return ParseTargets(targets);
  }
  statement.node.emplace<Label>().name = name;
  return true;
}

bool BodyParser::ParseDirective(Statement& statement) {
  const std::string_view name = tokens_.DottedName();
  if (name == "reg") return declarations_.ParseRegisters(statement.node.emplace<RegisterDeclaration>());
  if (name == "loc") return ParseLoc(statement.node.emplace<LocDirective>());
  if (name == "pragma") {
    tokens_.Advance();
    return declarations_.ParseStrings(statement.node.emplace<Pragma>().strings) && tokens_.Expect(';', "after .pragma");
  }
  if (name == "section") {
    statement.node.emplace<Opaque>();
    const Token start = tokens_.current();
    return recovery_.SkipStatement(start, true) || tokens_.Fail("the end of a section");
  }
  const Linkage linkage = ParseLinkage(tokens_);
  if (tokens_.current().kind != TokenKind::kDotted || StateSpaceFromName(tokens_.DottedName()) == StateSpace::kNone)
    return tokens_.Fail("a directive of a body");
  return declarations_.ParseVariables(linkage, statement.node.emplace<VariableDeclaration>());
}

bool BodyParser::ParseInstruction(Instruction& instruction) {
  if (tokens_.Accept('@')) {
    instruction.guard.is_negated = tokens_.Accept('!');
    if (!tokens_.ExpectIdentifier(instruction.guard.predicate, "a predicate after '@'")) return false;
  }
  if (!tokens_.ExpectIdentifier(instruction.opcode, "an instruction")) return false;
  if (tokens_.current().kind == TokenKind::kDotted) {
    ListBuilder<std::string_view> list(modifiers_);
    for (; tokens_.current().kind == TokenKind::kDotted; tokens_.Advance()) list.Add(tokens_.DottedName());
    instruction.modifiers = list.Finish(arena_);
  }
  return operands_.ParseOperands(instruction.opcode == "call", instruction.operands) &&
         tokens_.Expect(';', "after the instruction");
}

bool BodyParser::ParseLoc(LocDirective& loc) {
  tokens_.Advance();
  if (!ParseUint32(tokens_, "a file number", loc.file) || !ParseUint32(tokens_, "a line number", loc.line) ||
      !ParseUint32(tokens_, "a column number", loc.column))
    return false;
  while (tokens_.Accept(',')) {
    if (tokens_.current().kind != TokenKind::kIdentifier) return tokens_.Fail("function_name or inlined_at");
    if (tokens_.Text() == "function_name") {
      tokens_.Advance();
      if (!tokens_.ExpectIdentifier(loc.function_name, "a label") || !ParseOffset(tokens_, loc.function_name_offset))
        return false;
    } else if (tokens_.Text() == "inlined_at") {
      tokens_.Advance();
      if (!ParseUint32(tokens_, "a file number", loc.inlined_file) ||
          !ParseUint32(tokens_, "a line number", loc.inlined_line) ||
          !ParseUint32(tokens_, "a column number", loc.inlined_column))
        return false;
    } else {
      return tokens_.Fail("function_name or inlined_at");
    }
  }
  return true;
}

// .callprototype (returns) _ (parameters) .noreturn;
bool BodyParser::ParsePrototype(CallPrototype& prototype) {
  const Scope scope(names_);
  tokens_.Advance();
  if (tokens_.current().Is('(') && !declarations_.ParseParameters(prototype.returns)) return false;
  std::string_view name;
  if (!tokens_.ExpectIdentifier(name, "'_' in a prototype")) return false;
  if (tokens_.current().Is('(') && !declarations_.ParseParameters(prototype.parameters)) return false;
  if (tokens_.IsDotted("noreturn")) {
    prototype.is_noreturn = true;
    tokens_.Advance();
  }
  return tokens_.Expect(';', "after the prototype");
}

bool BodyParser::ParseTargets(TargetList& targets) {
  tokens_.Advance();
  return declarations_.ParseNames("a target", targets.targets) && tokens_.Expect(';', "after the targets");
}

}  // namespace tally::ptx_transforms
