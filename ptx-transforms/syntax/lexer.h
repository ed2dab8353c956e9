// PTX text to tokens, one at a time. White space, comments and preprocessor lines lie between tokens.
#pragma once

#include <string_view>

#include "ptx-transforms/syntax/token.h"

namespace tally::ptx_transforms {

// Holds a view of the text, which must be shorter than 4 GiB. O(1) memory; every byte is read a bounded number of
// times.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  // The next token; kEnd at the end and ever after; kBad for what is no token (it is at least one byte long).
  Token Next();
  // Goes back: the next token will be `token` again.
  void RewindTo(const Token& token);
  // Why the last kBad token is bad. Never null.
  const char* error() const { return error_; }
  std::string_view text() const { return text_; }

 private:
  bool SkipSpace();
  void ScanNumber(Token& token);
  void ScanString(Token& token);
  void ScanPunctuation(Token& token);
  void SkipLine();
  bool SkipBlockComment();
  char At(size_t offset) const { return offset < text_.size() ? text_[offset] : '\0'; }

  std::string_view text_;
  uint32_t at_ = 0;
  uint32_t previous_end_ = 0;
  uint32_t line_ = 1;
  uint32_t line_begin_ = 0;
  const char* error_ = "";
};

}  // namespace tally::ptx_transforms
