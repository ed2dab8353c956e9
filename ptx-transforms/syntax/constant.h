// Constants of PTX text: literals and constant expressions, folded to 64 bits.
#pragma once

#include <cstdint>
#include <string_view>

#include "ptx-transforms/syntax/token_stream.h"

namespace tally::ptx_transforms {

struct Constant {
  enum class Kind : uint8_t { kInteger, kFloat32, kFloat64 };
  Kind kind = Kind::kInteger;
  bool is_unsigned = false;  // .u64 in the rules of constant expressions; else .s64
  uint64_t bits = 0;
};

// One literal as the lexer delimits it. False: too large, or not a number.
bool ParseIntegerLiteral(std::string_view text, Constant& constant);
bool ParseFloatLiteral(std::string_view text, Constant& constant);

// Whether a constant expression can start with the current token.
bool StartsConstant(const TokenStream& tokens);
// A constant expression: all C operators on integers; of floats only literals and their negatives.
bool ParseConstant(TokenStream& tokens, Constant& constant);
// Any number of `+ term` and `- term`, added to `offset`; none is fine.
bool ParseOffset(TokenStream& tokens, int64_t& offset);
// A constant expression that is a non-negative integer not above `max`.
bool ParseCount(TokenStream& tokens, uint64_t max, const char* what, uint64_t& count);

}  // namespace tally::ptx_transforms
