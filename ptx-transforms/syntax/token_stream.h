// What the parts of the parser share: the current token, one token of lookahead, and the first failure.
//
// Parsing functions return false after Fail(); the failure stays pending until a statement- or item-level parser turns
// it into an error or into a warning about an Opaque node.
#pragma once

#include <string>
#include <string_view>

#include "ptx-transforms/syntax/diagnostic.h"
#include "ptx-transforms/syntax/lexer.h"

namespace tally::ptx_transforms {

class TokenStream {
 public:
  TokenStream(std::string_view text, size_t max_nesting) : lexer_(text), max_nesting_(max_nesting) { Advance(); }

  const Token& current() const { return current_; }
  const Token& Peek();
  void Advance();
  // Makes `token`, seen before, the current one again.
  void RewindTo(const Token& token);
  // Where the last consumed token ended.
  uint32_t consumed_end() const { return current_.leading; }

  std::string_view Text(const Token& token) const { return lexer_.text().substr(token.begin, token.end - token.begin); }
  std::string_view Text() const { return Text(current_); }
  // Of a kDotted: without its dot.
  std::string_view DottedName() const { return Text().substr(1); }
  bool IsDotted(std::string_view name) const { return current_.kind == TokenKind::kDotted && DottedName() == name; }

  // Consumes the punctuation if it is the current token.
  bool Accept(char punctuation);
  // The same, or Fail("expected 'c' WHERE, found ...").
  bool Expect(char punctuation, const char* where);
  bool ExpectIdentifier(std::string_view& name, const char* what);

  // Records "expected WHAT, found TOKEN" at the current token unless a failure is pending. Always false.
  bool Fail(const char* what);
  // The same with a whole sentence.
  bool FailWith(std::string message);
  bool has_failed() const { return has_failed_; }
  // A lexical error or too deep nesting: text that nobody could keep as opaque.
  bool failure_is_fatal() const { return failure_is_fatal_; }
  Diagnostic TakeFailure();

  // Held while inside brackets or braces; `ok` is false (and Fail is called) when too many are open.
  class Nesting {
   public:
    explicit Nesting(TokenStream& tokens);
    ~Nesting() { --tokens_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    bool ok() const { return ok_; }

   private:
    TokenStream& tokens_;
    bool ok_;
  };

 private:
  Lexer lexer_;
  Token current_;
  Token next_;
  bool has_next_ = false;
  bool has_failed_ = false;
  bool failure_is_fatal_ = false;
  size_t nesting_ = 0;
  size_t max_nesting_;
  Diagnostic failure_;
};

}  // namespace tally::ptx_transforms
