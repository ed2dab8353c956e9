#include "ptx-transforms/syntax/snippet.h"

#include <fmt/format.h>

#include "base/check.h"
#include "ptx-transforms/syntax/body_parser.h"

namespace tally::ptx_transforms {
namespace {

struct SnippetParser {
  SnippetParser(Module& module, std::string_view text)
      : tokens(text, options.max_nesting),
        recovery(tokens, module.arena(), options),
        declarations(tokens, module.arena(), names),
        bodies(tokens, module.arena(), names, declarations, recovery) {}

  ParseOptions options = {.keep_unknown = false};
  RegisterNames names;
  TokenStream tokens;
  Recovery recovery;
  DeclarationParser declarations;
  BodyParser bodies;
};

void ForgetPlaces(std::vector<Statement>& statements) {
  for (Statement& statement : statements) {
    statement.span = {};
    statement.edited = true;
    if (auto* block = std::get_if<Block>(&statement.node)) {
      block->open = block->close = {};
      ForgetPlaces(block->statements);
    }
  }
}

}  // namespace

std::vector<Statement> ParseSnippet(Module& module, std::string_view text,
                                    std::initializer_list<std::string_view> registers) {
  SnippetParser parser(module, module.arena().Keep(fmt::format("{{{}}}", text)));
  parser.names.OpenScope();
  for (const std::string_view name : registers) parser.names.Declare(name, false);
  std::vector<Statement> statements;
  SourceSpan open;
  SourceSpan close;
  CHECK(parser.bodies.ParseBody(statements, open, close) && parser.recovery.errors().empty());
  ForgetPlaces(statements);
  return statements;
}

List<Variable> ParseParameterSnippet(Module& module, std::string_view text) {
  SnippetParser parser(module, module.arena().Keep(fmt::format("({})", text)));
  parser.names.OpenScope();
  List<Variable> parameters;
  CHECK(parser.declarations.ParseParameters(parameters));
  return parameters;
}

}  // namespace tally::ptx_transforms
