#include "ptx-transforms/syntax/operand_parser.h"

#include "ptx-transforms/syntax/list_builder.h"

namespace tally::ptx_transforms {
namespace {

char ComponentFromText(std::string_view text) {
  if (text.size() != 2) return 0;
  switch (text[1]) {
    case 'x':
    case 'r':
      return 'x';
    case 'y':
    case 'g':
      return 'y';
    case 'z':
    case 'b':
      return 'z';
    case 'w':
    case 'a':
      return 'w';
    default:
      return 0;
  }
}

}  // namespace

bool OperandParser::ParseOperands(bool is_call, List<Operand>& operands) {
  if (tokens_.current().Is(';')) return true;
  ListBuilder<Operand> list(stack_);
  do {
    Operand operand;
    if (!ParseOperand(is_call, operand)) return false;
    list.Add(operand);
  } while (tokens_.Accept(','));
  if (!tokens_.current().Is(';')) return tokens_.Fail("',' or ';' after an operand");
  operands = list.Finish(arena_);
  return true;
}

bool OperandParser::ParseOperand(bool is_call, Operand& operand) {
  const uint32_t begin = tokens_.current().begin;
  if (!ParseSimple(is_call, operand)) return false;
  operand.range = {begin, tokens_.consumed_end()};
  if (!tokens_.current().Is('|')) return true;
  tokens_.Advance();
  Operand parts[2] = {operand, {}};
  const uint32_t second_begin = tokens_.current().begin;
  if (!ParseSimple(is_call, parts[1])) return false;
  parts[1].range = {second_begin, tokens_.consumed_end()};
  operand = Operand{};
  operand.kind = OperandKind::kPair;
  operand.range = {begin, tokens_.consumed_end()};
  operand.parts = arena_.Copy(std::span<const Operand>(parts));
  return true;
}

bool OperandParser::ParseSimple(bool is_call, Operand& operand) {
  const Token& token = tokens_.current();
  if (token.kind == TokenKind::kIdentifier) return ParseName(operand);
  if (token.kind == TokenKind::kPunctuation) {
    if (token.Is('[')) return ParseMemory(operand);
    if (token.Is('{')) return ParseParts('}', OperandKind::kVector, operand);
    if (is_call && token.Is('(')) return ParseParts(')', OperandKind::kGroup, operand);
    if (token.Is('!')) return ParseNegated(operand);
  }
  if (StartsConstant(tokens_)) return ParseImmediate(operand);
  return tokens_.Fail("an operand");
}

bool OperandParser::ParseName(Operand& operand) {
  operand.name = tokens_.Text();
  if (operand.name == "_") {
    operand.kind = OperandKind::kSink;
    operand.name = {};
    tokens_.Advance();
    return true;
  }
  if (operand.name == "WARP_SZ") return ParseImmediate(operand);
  tokens_.Advance();
  if (IsSpecialRegister(operand.name)) {
    operand.kind = OperandKind::kSpecialRegister;
    return ParseComponent(operand);
  }
  if (names_.IsRegister(operand.name)) {
    operand.kind = OperandKind::kRegister;
    return ParseComponent(operand);
  }
  operand.kind = OperandKind::kSymbol;
  if (tokens_.current().Is('[')) return ParseSubscript(operand);
  return ParseOffset(tokens_, operand.offset);
}

// The .x of %tid.x: it must touch the name.
bool OperandParser::ParseComponent(Operand& operand) {
  const Token& token = tokens_.current();
  if (token.kind != TokenKind::kDotted || token.leading != token.begin) return true;
  operand.component = ComponentFromText(tokens_.Text());
  if (operand.component == 0) return tokens_.Fail("a component (.x .y .z .w)");
  tokens_.Advance();
  return true;
}

bool OperandParser::ParseSubscript(Operand& operand) {
  const TokenStream::Nesting nesting(tokens_);
  if (!nesting.ok()) return false;
  tokens_.Advance();
  Operand index;
  const uint32_t begin = tokens_.current().begin;
  if (!ParseSimple(false, index)) return false;
  if (index.kind == OperandKind::kRegister && !ParseOffset(tokens_, index.offset)) return false;
  index.range = {begin, tokens_.consumed_end()};
  operand.kind = OperandKind::kSubscript;
  operand.parts = arena_.Copy({index});
  return tokens_.Expect(']', "after the index");
}

bool OperandParser::ParseNegated(Operand& operand) {
  if (tokens_.Peek().kind != TokenKind::kIdentifier) return ParseImmediate(operand);
  tokens_.Advance();
  if (!ParseName(operand)) return false;
  if (operand.kind != OperandKind::kRegister) return tokens_.FailWith("expected a predicate register after '!'");
  operand.negated = true;
  return true;
}

bool OperandParser::ParseImmediate(Operand& operand) {
  Constant constant;
  if (!ParseConstant(tokens_, constant)) return false;
  operand.name = {};
  operand.bits = constant.bits;
  operand.is_unsigned = constant.is_unsigned;
  switch (constant.kind) {
    case Constant::Kind::kInteger:
      operand.kind = OperandKind::kInteger;
      break;
    case Constant::Kind::kFloat32:
      operand.kind = OperandKind::kFloat32;
      break;
    case Constant::Kind::kFloat64:
      operand.kind = OperandKind::kFloat64;
      break;
  }
  return true;
}

bool OperandParser::ParseMemory(Operand& operand) {
  const TokenStream::Nesting nesting(tokens_);
  if (!nesting.ok()) return false;
  tokens_.Advance();
  Operand base;
  if (!ParseSimple(false, base)) return false;
  operand.kind = OperandKind::kMemory;
  operand.base_kind = base.kind;
  operand.name = base.name;
  operand.bits = base.bits;
  operand.offset = base.offset;
  operand.component = base.component;
  if (base.negated ||
      (base.kind != OperandKind::kRegister && base.kind != OperandKind::kSymbol && base.kind != OperandKind::kInteger))
    return tokens_.FailWith("expected a register, a variable or an integer as base of an address");
  if (!ParseOffset(tokens_, operand.offset)) return false;
  if (tokens_.current().Is(',')) {
    ListBuilder<Operand> list(stack_);
    while (tokens_.Accept(',')) {
      Operand part;
      if (!ParseOperand(false, part)) return false;
      list.Add(part);
    }
    operand.parts = list.Finish(arena_);
  }
  return tokens_.Expect(']', "after the address");
}

bool OperandParser::ParseParts(char close, OperandKind kind, Operand& operand) {
  const TokenStream::Nesting nesting(tokens_);
  if (!nesting.ok()) return false;
  tokens_.Advance();
  operand.kind = kind;
  if (tokens_.Accept(close)) return true;
  ListBuilder<Operand> list(stack_);
  do {
    Operand part;
    if (!ParseOperand(false, part)) return false;
    list.Add(part);
  } while (tokens_.Accept(','));
  operand.parts = list.Finish(arena_);
  return tokens_.Expect(close, kind == OperandKind::kVector ? "after the vector" : "after the list");
}

}  // namespace tally::ptx_transforms
