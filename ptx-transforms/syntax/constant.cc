#include "ptx-transforms/syntax/constant.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <string>

namespace tally::ptx_transforms {
namespace {

struct Operator {
  uint16_t punctuation;
  int precedence;
};

// C's levels; a higher one binds tighter.
constexpr int kTermPrecedence = 10;
constexpr std::array<Operator, 18> kOperators = {{
    {'*', 10},
    {'/', 10},
    {'%', 10},
    {'+', 9},
    {'-', 9},
    {TwoCharacters('<', '<'), 8},
    {TwoCharacters('>', '>'), 8},
    {'<', 7},
    {'>', 7},
    {TwoCharacters('<', '='), 7},
    {TwoCharacters('>', '='), 7},
    {TwoCharacters('=', '='), 6},
    {TwoCharacters('!', '='), 6},
    {'&', 5},
    {'^', 4},
    {'|', 3},
    {TwoCharacters('&', '&'), 2},
    {TwoCharacters('|', '|'), 1},
}};

const Operator* FindOperator(const Token& token) {
  if (token.kind != TokenKind::kPunctuation) return nullptr;
  for (const Operator& candidate : kOperators)
    if (candidate.punctuation == token.punctuation) return &candidate;
  return nullptr;
}

bool ParseBinary(TokenStream& tokens, int min_precedence, Constant& left);
bool ParseConditional(TokenStream& tokens, Constant& constant);

Constant Integer(uint64_t bits, bool is_unsigned) { return {Constant::Kind::kInteger, is_unsigned, bits}; }

bool ParsePrimary(TokenStream& tokens, Constant& constant) {
  const Token& token = tokens.current();
  switch (token.kind) {
    case TokenKind::kInteger:
      if (!ParseIntegerLiteral(tokens.Text(), constant)) return tokens.Fail("an integer of at most 64 bits");
      tokens.Advance();
      return true;
    case TokenKind::kFloat:
      if (!ParseFloatLiteral(tokens.Text(), constant)) return tokens.Fail("a floating-point number");
      tokens.Advance();
      return true;
    case TokenKind::kIdentifier:
      if (tokens.Text() != "WARP_SZ") return tokens.Fail("a constant");
      constant = Integer(32, false);
      tokens.Advance();
      return true;
    default:
      return tokens.Fail("a constant");
  }
}

// ( expression ), or a cast (.s64) x or (.u64) x.
bool ParseParenthesis(TokenStream& tokens, Constant& constant);

bool ParseUnary(TokenStream& tokens, Constant& constant) {
  // Collected in a loop, since a text of a million minus signs must not become a million calls.
  uint64_t num_minus = 0;
  while (tokens.current().Is('-') || tokens.current().Is('+')) {
    num_minus += tokens.current().Is('-') ? 1 : 0;
    tokens.Advance();
  }
  if (tokens.current().Is('~') || tokens.current().Is('!')) {
    const TokenStream::Nesting nesting(tokens);
    if (!nesting.ok()) return false;
    const bool is_not = tokens.current().Is('!');
    tokens.Advance();
    if (!ParseUnary(tokens, constant)) return false;
    if (constant.kind != Constant::Kind::kInteger) return tokens.Fail("an integer");
    constant.bits = is_not ? (constant.bits == 0 ? 1 : 0) : ~constant.bits;
    if (is_not) constant.is_unsigned = false;
  } else if (tokens.current().Is('(')) {
    if (!ParseParenthesis(tokens, constant)) return false;
  } else if (!ParsePrimary(tokens, constant)) {
    return false;
  }
  if (num_minus % 2 == 0) return true;
  switch (constant.kind) {
    case Constant::Kind::kInteger:
      constant.bits = 0 - constant.bits;
      break;
    case Constant::Kind::kFloat32:
      constant.bits ^= uint64_t{1} << 31;
      break;
    case Constant::Kind::kFloat64:
      constant.bits ^= uint64_t{1} << 63;
      break;
  }
  return true;
}

bool ParseParenthesis(TokenStream& tokens, Constant& constant) {
  const TokenStream::Nesting nesting(tokens);
  if (!nesting.ok()) return false;
  tokens.Advance();
  if (tokens.current().kind == TokenKind::kDotted) {
    const bool to_unsigned = tokens.IsDotted("u64");
    if (!to_unsigned && !tokens.IsDotted("s64")) return tokens.Fail(".s64 or .u64");
    tokens.Advance();
    if (!tokens.Expect(')', "after the type of a cast") || !ParseUnary(tokens, constant)) return false;
    if (constant.kind != Constant::Kind::kInteger) return tokens.Fail("an integer");
    constant.is_unsigned = to_unsigned;
    return true;
  }
  return ParseConditional(tokens, constant) && tokens.Expect(')', "after the constant expression");
}

// `a op b` with PTX's rule that an operation is unsigned if either operand is.
bool Apply(TokenStream& tokens, uint16_t op, Constant& a, const Constant& b) {
  if (a.kind != Constant::Kind::kInteger || b.kind != Constant::Kind::kInteger)
    return tokens.FailWith("expected integers around an operator of a constant expression");
  const bool is_unsigned = a.is_unsigned || b.is_unsigned;
  const uint64_t x = a.bits;
  const uint64_t y = b.bits;
  const auto sx = static_cast<int64_t>(x);
  const auto sy = static_cast<int64_t>(y);
  if ((op == '/' || op == '%') && y == 0) return tokens.FailWith("division by zero in a constant expression");
  const bool less = is_unsigned ? x < y : sx < sy;
  switch (op) {
    case '*':
      a = Integer(x * y, is_unsigned);
      return true;
    case '/':
      a = Integer(is_unsigned ? x / y : (sy == -1 ? 0 - x : static_cast<uint64_t>(sx / sy)), is_unsigned);
      return true;
    case '%':
      a = Integer(is_unsigned ? x % y : (sy == -1 ? 0 : static_cast<uint64_t>(sx % sy)), is_unsigned);
      return true;
    case '+':
      a = Integer(x + y, is_unsigned);
      return true;
    case '-':
      a = Integer(x - y, is_unsigned);
      return true;
    case TwoCharacters('<', '<'):
      a.bits = y >= 64 ? 0 : x << y;
      return true;
    case TwoCharacters('>', '>'):
      if (a.is_unsigned) {
        a.bits = y >= 64 ? 0 : x >> y;
      } else {
        a.bits = static_cast<uint64_t>(sx >> (y >= 64 ? 63 : y));
      }
      return true;
    case '<':
      a = Integer(less, false);
      return true;
    case '>':
      a = Integer(!less && x != y, false);
      return true;
    case TwoCharacters('<', '='):
      a = Integer(less || x == y, false);
      return true;
    case TwoCharacters('>', '='):
      a = Integer(!less, false);
      return true;
    case TwoCharacters('=', '='):
      a = Integer(x == y, false);
      return true;
    case TwoCharacters('!', '='):
      a = Integer(x != y, false);
      return true;
    case '&':
      a = Integer(x & y, is_unsigned);
      return true;
    case '^':
      a = Integer(x ^ y, is_unsigned);
      return true;
    case '|':
      a = Integer(x | y, is_unsigned);
      return true;
    case TwoCharacters('&', '&'):
      a = Integer(x != 0 && y != 0, false);
      return true;
    default:
      a = Integer(x != 0 || y != 0, false);
      return true;
  }
}

// Precedence climbing: the recursion is at most as deep as there are levels.
bool ParseBinary(TokenStream& tokens, int min_precedence, Constant& left) {
  if (!ParseUnary(tokens, left)) return false;
  for (;;) {
    const Operator* op = FindOperator(tokens.current());
    if (op == nullptr || op->precedence < min_precedence) return true;
    tokens.Advance();
    Constant right;
    if (!ParseBinary(tokens, op->precedence + 1, right) || !Apply(tokens, op->punctuation, left, right)) return false;
  }
}

bool ParseConditional(TokenStream& tokens, Constant& constant) {
  if (!ParseBinary(tokens, 1, constant)) return false;
  if (!tokens.current().Is('?')) return true;
  const TokenStream::Nesting nesting(tokens);
  if (!nesting.ok()) return false;
  tokens.Advance();
  Constant if_true;
  Constant if_false;
  if (!ParseConditional(tokens, if_true) || !tokens.Expect(':', "in a conditional expression") ||
      !ParseConditional(tokens, if_false))
    return false;
  constant = constant.bits != 0 ? if_true : if_false;
  return true;
}

}  // namespace

bool ParseIntegerLiteral(std::string_view text, Constant& constant) {
  constant = Constant{};
  if (text.ends_with('U')) {
    constant.is_unsigned = true;
    text.remove_suffix(1);
  }
  int base = 10;
  if (text.size() > 1 && text[0] == '0') {
    const char second = text[1];
    base = second == 'x' || second == 'X' ? 16 : second == 'b' || second == 'B' ? 2 : 8;
    text.remove_prefix(base == 8 ? 1 : 2);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), constant.bits, base);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (static_cast<int64_t>(constant.bits) < 0) constant.is_unsigned = true;
  return true;
}

bool ParseFloatLiteral(std::string_view text, Constant& constant) {
  constant = Constant{};
  if (text.size() > 2 && text[0] == '0' && (text[1] | 0x20) >= 'd' && (text[1] | 0x20) <= 'f' &&
      (text[1] | 0x20) != 'e') {
    const bool is_float32 = (text[1] | 0x20) == 'f';
    constant.kind = is_float32 ? Constant::Kind::kFloat32 : Constant::Kind::kFloat64;
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), constant.bits, 16);
    return error == std::errc() && end == text.data() + text.size();
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) value = std::strtod(std::string(text).c_str(), nullptr);
  constant.kind = Constant::Kind::kFloat64;
  constant.bits = std::bit_cast<uint64_t>(value);
  return end == text.data() + text.size();
}

bool StartsConstant(const TokenStream& tokens) {
  const Token& token = tokens.current();
  return token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat || token.Is('-') || token.Is('+') ||
         token.Is('~') || token.Is('!') || token.Is('(') ||
         (token.kind == TokenKind::kIdentifier && tokens.Text() == "WARP_SZ");
}

bool ParseConstant(TokenStream& tokens, Constant& constant) { return ParseConditional(tokens, constant); }

bool ParseOffset(TokenStream& tokens, int64_t& offset) {
  auto sum = static_cast<uint64_t>(offset);
  while (tokens.current().Is('+') || tokens.current().Is('-')) {
    const bool is_minus = tokens.current().Is('-');
    tokens.Advance();
    Constant term;
    if (!ParseBinary(tokens, kTermPrecedence, term)) return false;
    if (term.kind != Constant::Kind::kInteger) return tokens.FailWith("expected an integer offset");
    sum = is_minus ? sum - term.bits : sum + term.bits;
  }
  offset = static_cast<int64_t>(sum);
  return true;
}

bool ParseCount(TokenStream& tokens, uint64_t max, const char* what, uint64_t& count) {
  Constant constant;
  if (!StartsConstant(tokens)) return tokens.Fail(what);
  const Token first = tokens.current();
  if (!ParseConstant(tokens, constant)) return false;
  const bool is_negative = !constant.is_unsigned && static_cast<int64_t>(constant.bits) < 0;
  if (constant.kind != Constant::Kind::kInteger || is_negative || constant.bits > max) {
    tokens.RewindTo(first);
    return tokens.Fail(what);
  }
  count = constant.bits;
  return true;
}

}  // namespace tally::ptx_transforms
