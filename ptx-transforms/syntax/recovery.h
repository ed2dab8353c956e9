// What the parser does with text that it does not understand: keep it as an Opaque node, or report an error and find
// the next place to go on from.
#pragma once

#include <vector>

#include "ptx-transforms/syntax/ast.h"
#include "ptx-transforms/syntax/parser.h"
#include "ptx-transforms/syntax/token_stream.h"

namespace tally::ptx_transforms {

class Recovery {
 public:
  // All must outlive the object.
  Recovery(TokenStream& tokens, Arena& arena, const ParseOptions& options)
      : tokens_(tokens), arena_(arena), options_(options) {}

  // Takes the pending failure. If the text from `start` on can be kept (lexically sound, balanced, ends with ; or, for
  // a directive, with a } of its own) it is consumed, `opaque` is filled and the failure becomes a warning: true.
  // Else the failure becomes an error and the stream stands at a place where another statement may start: false.
  bool KeepOpaque(const Token& start, bool is_directive, Opaque& opaque);
  // The pending failure becomes an error; nothing is skipped.
  void ReportError();
  // Skips from `start` to the end of its statement. False: it has none.
  bool SkipStatement(const Token& start, bool is_directive);

  // Enough errors: the parser should end.
  bool should_stop() const { return errors_.size() >= options_.max_diagnostics; }
  const std::vector<Diagnostic>& errors() const { return errors_; }
  std::vector<Diagnostic> TakeWarnings() { return std::move(warnings_); }

 private:
  TokenStream& tokens_;
  Arena& arena_;
  const ParseOptions& options_;
  std::vector<Diagnostic> errors_;
  std::vector<Diagnostic> warnings_;
};

}  // namespace tally::ptx_transforms
