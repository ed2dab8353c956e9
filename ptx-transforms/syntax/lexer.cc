#include "ptx-transforms/syntax/lexer.h"

#include <array>

namespace tally::ptx_transforms {
namespace {

enum CharacterClass : uint8_t {
  kOther = 0,
  kSpace = 1,
  kDigit = 2,
  kNameStart = 4,  // letters, _ and $
  kHexLetter = 8,
};

constexpr std::array<uint8_t, 256> MakeClasses() {
  std::array<uint8_t, 256> classes = {};
  for (const unsigned char c : {' ', '\t', '\n', '\r', '\v', '\f'}) classes[c] |= kSpace;
  for (unsigned char c = '0'; c <= '9'; ++c) classes[c] |= kDigit;
  for (unsigned char c = 'a'; c <= 'z'; ++c) classes[c] |= kNameStart;
  for (unsigned char c = 'A'; c <= 'Z'; ++c) classes[c] |= kNameStart;
  for (unsigned char c = 'a'; c <= 'f'; ++c) classes[c] |= kHexLetter;
  for (unsigned char c = 'A'; c <= 'F'; ++c) classes[c] |= kHexLetter;
  classes['_'] |= kNameStart;
  classes['$'] |= kNameStart;
  return classes;
}
constexpr std::array<uint8_t, 256> kClasses = MakeClasses();

bool IsA(char c, int classes) { return (kClasses[static_cast<unsigned char>(c)] & classes) != 0; }
bool IsNamePart(char c) { return IsA(c, kNameStart | kDigit); }
bool IsHex(char c) { return IsA(c, kDigit | kHexLetter); }

}  // namespace

void Lexer::SkipLine() {
  const size_t newline = text_.find('\n', at_);
  at_ = static_cast<uint32_t>(newline == std::string_view::npos ? text_.size() : newline);
}

bool Lexer::SkipBlockComment() {
  uint32_t at = at_ + 2;
  uint32_t line = line_;
  uint32_t line_begin = line_begin_;
  for (; at + 1 < text_.size(); ++at) {
    if (text_[at] == '\n') {
      ++line;
      line_begin = at + 1;
    } else if (text_[at] == '*' && text_[at + 1] == '/') {
      at_ = at + 2;
      line_ = line;
      line_begin_ = line_begin;
      return true;
    }
  }
  return false;
}

// False: an unterminated comment starts at at_.
bool Lexer::SkipSpace() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') {
      line_begin_ = ++at_;
      ++line_;
    } else if (IsA(c, kSpace)) {
      ++at_;
    } else if (c == '/' && At(at_ + 1) == '/') {
      SkipLine();
    } else if (c == '/' && At(at_ + 1) == '*') {
      if (!SkipBlockComment()) return false;
    } else if (c == '#') {  // a line of the preprocessor: `# 1 "file.ptx"`
      SkipLine();
    } else {
      return true;
    }
  }
  return true;
}

Token Lexer::Next() {
  Token token;
  token.leading = previous_end_;
  const bool is_closed = SkipSpace();
  token.begin = at_;
  token.line = line_;
  token.line_begin = line_begin_;
  if (!is_closed) {
    token.kind = TokenKind::kBad;
    error_ = "a comment that ends with */";
    at_ = static_cast<uint32_t>(text_.size());
  } else if (at_ == text_.size()) {
    token.kind = TokenKind::kEnd;
  } else {
    const char c = text_[at_];
    if (IsA(c, kNameStart) || (c == '%' && IsNamePart(At(at_ + 1)))) {
      token.kind = TokenKind::kIdentifier;
      do ++at_;
      while (IsNamePart(At(at_)));
    } else if (c == '.' && IsNamePart(At(at_ + 1))) {
      token.kind = TokenKind::kDotted;
      do {
        ++at_;
        if (At(at_) == ':' && At(at_ + 1) == ':' && IsNamePart(At(at_ + 2))) at_ += 2;
      } while (IsNamePart(At(at_)));
    } else if (IsA(c, kDigit)) {
      ScanNumber(token);
    } else if (c == '"') {
      ScanString(token);
    } else {
      ScanPunctuation(token);
    }
  }
  token.end = at_;
  previous_end_ = at_;
  return token;
}

void Lexer::ScanNumber(Token& token) {
  token.kind = TokenKind::kInteger;
  const char second = At(at_ + 1);
  const bool has_prefix = text_[at_] == '0';
  if (has_prefix && (second == 'x' || second == 'X')) {
    at_ += 2;
    const uint32_t digits = at_;
    while (IsHex(At(at_))) ++at_;
    if (at_ == digits) token.kind = TokenKind::kBad;
  } else if (has_prefix && (second == 'f' || second == 'F' || second == 'd' || second == 'D')) {
    token.kind = TokenKind::kFloat;
    const uint32_t num_digits = second == 'f' || second == 'F' ? 8 : 16;
    at_ += 2;
    const uint32_t digits = at_;
    while (IsHex(At(at_))) ++at_;
    if (at_ - digits != num_digits) token.kind = TokenKind::kBad;
  } else if (has_prefix && (second == 'b' || second == 'B')) {
    at_ += 2;
    const uint32_t digits = at_;
    while (At(at_) == '0' || At(at_) == '1') ++at_;
    if (at_ == digits) token.kind = TokenKind::kBad;
  } else {
    while (IsA(At(at_), kDigit)) ++at_;
    if (At(at_) == '.' && !IsA(At(at_ + 1), kNameStart)) {
      token.kind = TokenKind::kFloat;
      ++at_;
      while (IsA(At(at_), kDigit)) ++at_;
    }
    if (At(at_) == 'e' || At(at_) == 'E') {
      const uint32_t sign = At(at_ + 1) == '+' || At(at_ + 1) == '-' ? 1 : 0;
      if (IsA(At(at_ + 1 + sign), kDigit)) {
        token.kind = TokenKind::kFloat;
        at_ += 1 + sign;
        while (IsA(At(at_), kDigit)) ++at_;
      }
    }
  }
  if (token.kind == TokenKind::kInteger && At(at_) == 'U') ++at_;
  if (IsNamePart(At(at_))) {
    token.kind = TokenKind::kBad;
    while (IsNamePart(At(at_))) ++at_;
  }
  if (token.kind == TokenKind::kBad) error_ = "a number";
}

void Lexer::ScanString(Token& token) {
  token.kind = TokenKind::kString;
  ++at_;
  while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
    at_ += text_[at_] == '\\' && At(at_ + 1) != '\n' ? 2 : 1;
  }
  if (At(at_) == '"') {
    ++at_;
    return;
  }
  token.kind = TokenKind::kBad;
  error_ = "a string that ends on its line";
  at_ = token.begin;
  SkipLine();
}

void Lexer::ScanPunctuation(Token& token) {
  token.kind = TokenKind::kPunctuation;
  const char c = text_[at_];
  const char next = At(at_ + 1);
  token.punctuation = static_cast<unsigned char>(c);
  const bool is_pair = ((c == '<' || c == '>') && (next == c || next == '=')) ||
                       ((c == '=' || c == '!') && next == '=') || ((c == '&' || c == '|') && next == c);
  if (is_pair) {
    token.punctuation = TwoCharacters(c, next);
    at_ += 2;
    return;
  }
  ++at_;
  if (std::string_view("{}[]()<>,;:=@!|+-*/%&^~?").find(c) == std::string_view::npos) {
    token.kind = TokenKind::kBad;
    error_ = "PTX text";
  }
}

void Lexer::RewindTo(const Token& token) {
  at_ = token.begin;
  previous_end_ = token.leading;
  line_ = token.line;
  line_begin_ = token.line_begin;
}

}  // namespace tally::ptx_transforms
