#include "ptx-transforms/syntax/recovery.h"

#include <utility>

namespace tally::ptx_transforms {
namespace {

char ClosingOf(char open) { return open == '(' ? ')' : open == '[' ? ']' : '}'; }

}  // namespace

bool Recovery::SkipStatement(const Token& start, bool is_directive) {
  constexpr size_t kMaxOpen = 4096;
  tokens_.RewindTo(start);
  std::string closing;  // what is expected, innermost last
  for (;; tokens_.Advance()) {
    const Token& token = tokens_.current();
    if (token.kind == TokenKind::kEnd || token.kind == TokenKind::kBad) return false;
    if (token.kind != TokenKind::kPunctuation || token.punctuation > 127) continue;
    const char c = static_cast<char>(token.punctuation);
    if (c == '(' || c == '[' || c == '{') {
      if (closing.size() == kMaxOpen) return false;
      closing += ClosingOf(c);
    } else if (c == ')' || c == ']' || c == '}') {
      if (closing.empty() || closing.back() != c) return false;
      closing.pop_back();
      if (!closing.empty() || c != '}' || !is_directive) continue;
      tokens_.Advance();
      tokens_.Accept(';');
      return true;
    } else if (c == ';') {
      if (closing.empty()) {
        tokens_.Advance();
        return true;
      }
      // Only the block of a directive may hold statements.
      if (!is_directive || closing.back() != '}') return false;
    }
  }
}

bool Recovery::KeepOpaque(const Token& start, bool is_directive, Opaque& opaque) {
  const bool may_keep = options_.keep_unknown && !tokens_.failure_is_fatal();
  Diagnostic failure = tokens_.TakeFailure();
  if (may_keep && SkipStatement(start, is_directive)) {
    opaque.reason = arena_.Keep(failure.message);
    if (warnings_.size() < options_.max_diagnostics) warnings_.push_back(std::move(failure));
    return true;
  }
  errors_.push_back(std::move(failure));
  tokens_.RewindTo(start);
  tokens_.Advance();
  while (tokens_.current().kind != TokenKind::kEnd && !tokens_.current().Is('}')) {
    if (tokens_.Accept(';')) break;
    tokens_.Advance();
  }
  return false;
}

void Recovery::ReportError() { errors_.push_back(tokens_.TakeFailure()); }

}  // namespace tally::ptx_transforms
