// The words of PTX text.
#pragma once

#include <cstdint>

#include "ptx-transforms/syntax/source.h"

namespace tally::ptx_transforms {

enum class TokenKind : uint8_t {
  kIdentifier,   // name, %r1, $L__BB0_1, _
  kDotted,       // .global, .v4, .shared::cta, .2d: directives, types and modifiers alike
  kInteger,      // 12, 0x1F, 017, 0b11, with or without U
  kFloat,        // 0f3F800000, 0d3FF0000000000000, 1.5e3
  kString,       // "..." with its quotes
  kPunctuation,  // see Token::punctuation
  kEnd,
  kBad,  // no token of PTX; Lexer::error says why
};

// Operators of two characters, as stored in Token::punctuation; those of one are their character.
constexpr uint16_t TwoCharacters(char first, char second) {
  return static_cast<uint16_t>(static_cast<unsigned char>(first) << 8 | static_cast<unsigned char>(second));
}

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint16_t punctuation = 0;
  uint32_t leading = 0;  // where the token before it ended
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t line = 1;
  uint32_t line_begin = 0;  // offset of the line's first byte

  bool Is(char character) const {
    return punctuation == static_cast<unsigned char>(character) && kind == TokenKind::kPunctuation;
  }
  TextRange range() const { return {begin, end}; }
  SourcePosition position() const { return {line, begin - line_begin + 1}; }
  SourceSpan span() const { return {leading, begin, end, position()}; }
};

}  // namespace tally::ptx_transforms
