#include "ptx-transforms/syntax/token_stream.h"

#include <fmt/format.h>

#include <utility>

#include "base/printable.h"

namespace tally::ptx_transforms {
namespace {

constexpr size_t kMostLettersSaid = 32;

}  // namespace

const Token& TokenStream::Peek() {
  if (!has_next_) {
    next_ = lexer_.Next();
    has_next_ = true;
  }
  return next_;
}

void TokenStream::Advance() {
  if (has_next_) {
    current_ = next_;
    has_next_ = false;
  } else {
    current_ = lexer_.Next();
  }
}

void TokenStream::RewindTo(const Token& token) {
  lexer_.RewindTo(token);
  has_next_ = false;
  current_ = lexer_.Next();
}

bool TokenStream::Accept(char punctuation) {
  if (!current_.Is(punctuation)) return false;
  Advance();
  return true;
}

bool TokenStream::Expect(char punctuation, const char* where) {
  if (Accept(punctuation)) return true;
  if (has_failed_) return false;
  return Fail(fmt::format("'{}' {}", punctuation, where).c_str());
}

bool TokenStream::ExpectIdentifier(std::string_view& name, const char* what) {
  if (current_.kind != TokenKind::kIdentifier) return Fail(what);
  name = Text();
  Advance();
  return true;
}

bool TokenStream::Fail(const char* what) {
  if (has_failed_) return false;
  if (current_.kind == TokenKind::kBad) {
    failure_is_fatal_ = true;
    return FailWith(fmt::format("expected {}, found {}", lexer_.error(), Quoted(Text(), kMostLettersSaid)));
  }
  if (current_.kind == TokenKind::kEnd) return FailWith(fmt::format("expected {}, found the end of the text", what));
  return FailWith(fmt::format("expected {}, found {}", what, Quoted(Text(), kMostLettersSaid)));
}

bool TokenStream::FailWith(std::string message) {
  if (has_failed_) return false;
  has_failed_ = true;
  failure_ = {current_.position(), std::move(message)};
  return false;
}

Diagnostic TokenStream::TakeFailure() {
  has_failed_ = false;
  failure_is_fatal_ = false;
  return std::exchange(failure_, {});
}

TokenStream::Nesting::Nesting(TokenStream& tokens) : tokens_(tokens), ok_(tokens.nesting_ < tokens.max_nesting_) {
  ++tokens_.nesting_;
  if (!ok_) {
    tokens_.FailWith(fmt::format("more than {} brackets or braces are open", tokens_.max_nesting_));
    tokens_.failure_is_fatal_ = true;
  }
}

}  // namespace tally::ptx_transforms
