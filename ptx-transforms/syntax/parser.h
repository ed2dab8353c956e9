// PTX text to Module. Safe on hostile text: time and memory are linear in its size, nesting is bounded.
//
//   Result<Module> module = ParseModule(text);
//   if (!module) log(module.error().message());   // "ptx:12:7: expected ';' after the instruction"
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"
#include "ptx-transforms/syntax/module.h"

namespace tally::ptx_transforms {

struct ParseOptions {
  // Keep what is not understood as Opaque nodes (with a warning in Module::warnings) as long as it is lexically sound
  // and has an end. Off: such text is an error.
  bool keep_unknown = true;
  // Errors (or warnings) kept; parsing goes on after an error only to find more of them.
  size_t max_diagnostics = 10;
  // { } blocks, vectors and initialisers within one another. ptxas gives up far earlier than this.
  size_t max_nesting = 128;
  // Longer text is refused (kResourceExhausted): a tree takes up to about 40 times the size of its text.
  size_t max_source_bytes = size_t{256} << 20;
};

// Errors: kInvalidArgument, whose message is one "ptx:LINE:COL: ..." per line; kResourceExhausted (see options).
// One NUL at the end of `text` (as images carry it) and what follows it are ignored.
Result<Module> ParseModule(std::string text, const ParseOptions& options = {});

}  // namespace tally::ptx_transforms
