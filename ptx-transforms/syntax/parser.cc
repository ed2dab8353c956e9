#include "ptx-transforms/syntax/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "ptx-transforms/syntax/body_parser.h"

namespace tally::ptx_transforms {
namespace {

// Beyond that text is refused: what is made of a tree grows with its statements, to half a KiB for each, and `ret;`
// takes four bytes. The largest text of CUDA 13's libraries has 870,000. Labels and braces stand beside them, a few for
// each.
constexpr size_t kMaxStatements = size_t{1} << 20;
constexpr size_t kMaxBeside = 4 * kMaxStatements;

// Nesting costs stack, so the caller's wish has a bound.
constexpr size_t kMaxNestingOfAll = 1000;

class ModuleParser {
 public:
  ModuleParser(Module& module, const ParseOptions& options)
      : module_(module),
        tokens_(module.source(), std::min(options.max_nesting, kMaxNestingOfAll)),
        recovery_(tokens_, module.arena(), options),
        declarations_(tokens_, module.arena(), names_),
        bodies_(tokens_, module.arena(), names_, declarations_, recovery_) {}

  Status Parse();

 private:
  bool ParseItem(Item& item);
  bool ParseVersion(VersionDirective& version);
  bool ParseTarget(TargetDirective& target);
  bool ParseAddressSize(AddressSizeDirective& address_size);
  bool ParseFile(FileDirective& file);
  bool ParseAlias(Alias& alias);
  bool ParseFunction(Linkage linkage, Item& item);
  bool ParseFunctionHead(Function& function);
  bool ParseFunctionDirectives(Function& function, ListBuilder<FunctionDirective>& directives);
  bool ParseFunctionDirective(FunctionDirective& directive);

  Module& module_;
  RegisterNames names_;
  TokenStream tokens_;
  Recovery recovery_;
  DeclarationParser declarations_;
  BodyParser bodies_;
  std::vector<FunctionDirective> directives_;
  std::vector<uint64_t> values_;
  bool has_version_ = false;
  bool has_target_ = false;
};

Status ModuleParser::Parse() {
  if (!tokens_.IsDotted("version")) {
    tokens_.Fail(".version at the start of a PTX module");
    recovery_.ReportError();
  }
  while (tokens_.current().kind != TokenKind::kEnd && recovery_.errors().empty()) {
    const Token start = tokens_.current();
    Item& item = module_.items().emplace_back();
    item.span = start.span();
    if (ParseItem(item)) {
      if (const auto* function = std::get_if<Function>(&item.node); function == nullptr || !function->has_body)
        item.span.end = tokens_.consumed_end();
      continue;
    }
    if (!tokens_.has_failed()) break;  // too many errors in a body
    const bool is_in_body = std::holds_alternative<Function>(item.node) && std::get<Function>(item.node).has_body;
    if (is_in_body) {
      recovery_.ReportError();
    } else if (recovery_.KeepOpaque(start, true, item.node.emplace<Opaque>())) {
      item.span.end = tokens_.consumed_end();
    }
  }
  module_.trailing = {tokens_.current().leading, tokens_.current().end};
  module_.warnings = recovery_.TakeWarnings();
  if (recovery_.errors().empty() && !has_target_) {
    tokens_.Fail(".target in a PTX module");
    recovery_.ReportError();
  }
  if (recovery_.errors().empty()) return OkStatus();
  std::string message;
  for (const Diagnostic& error : recovery_.errors()) {
    if (!message.empty()) message += '\n';
    message += error.ToString();
  }
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

bool ModuleParser::ParseItem(Item& item) {
  if (tokens_.current().kind != TokenKind::kDotted) return tokens_.Fail("a directive at module scope");
  const std::string_view name = tokens_.DottedName();
  if (name == "version") return ParseVersion(item.node.emplace<VersionDirective>());
  if (name == "target") return ParseTarget(item.node.emplace<TargetDirective>());
  if (name == "address_size") return ParseAddressSize(item.node.emplace<AddressSizeDirective>());
  if (name == "file") return ParseFile(item.node.emplace<FileDirective>());
  if (name == "alias") return ParseAlias(item.node.emplace<Alias>());
  if (name == "pragma") {
    tokens_.Advance();
    return declarations_.ParseStrings(item.node.emplace<Pragma>().strings) && tokens_.Expect(';', "after .pragma");
  }
  if (name == "section") {
    item.node.emplace<Opaque>();
    const Token start = tokens_.current();
    return recovery_.SkipStatement(start, true) || tokens_.Fail("the end of a section");
  }
  const Linkage linkage = ParseLinkage(tokens_);
  if (tokens_.IsDotted("entry") || tokens_.IsDotted("func")) return ParseFunction(linkage, item);
  if (tokens_.current().kind != TokenKind::kDotted || StateSpaceFromName(tokens_.DottedName()) == StateSpace::kNone)
    return tokens_.Fail("a directive of module scope");
  return declarations_.ParseVariables(linkage, item.node.emplace<VariableDeclaration>());
}

bool ModuleParser::ParseVersion(VersionDirective& version) {
  tokens_.Advance();
  const std::string_view text = tokens_.Text();
  const size_t dot = text.find('.');
  if (tokens_.current().kind != TokenKind::kFloat || dot == std::string_view::npos)
    return tokens_.Fail("a version such as 8.5");
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.major);
  const auto minor = std::from_chars(text.data() + dot + 1, end, version.minor);
  if (major.ec != std::errc() || major.ptr != text.data() + dot || minor.ec != std::errc() || minor.ptr != end)
    return tokens_.Fail("a version such as 8.5");
  tokens_.Advance();
  if (!has_version_) module_.version = version;
  has_version_ = true;
  return true;
}

bool ModuleParser::ParseTarget(TargetDirective& target) {
  tokens_.Advance();
  if (!declarations_.ParseNames("a target such as sm_90", target.targets)) return false;
  if (!has_target_) module_.targets = target.targets;
  has_target_ = true;
  return true;
}

bool ModuleParser::ParseAddressSize(AddressSizeDirective& address_size) {
  tokens_.Advance();
  if (tokens_.Text() != "64" && tokens_.Text() != "32") return tokens_.Fail("32 or 64");
  address_size.bits = tokens_.Text() == "64" ? 64 : 32;
  module_.address_size = address_size.bits;
  tokens_.Advance();
  return true;
}

bool ModuleParser::ParseFile(FileDirective& file) {
  tokens_.Advance();
  if (!ParseCount(tokens_, std::numeric_limits<uint64_t>::max(), "a file number", file.index)) return false;
  if (tokens_.current().kind != TokenKind::kString) return tokens_.Fail("the name of a file");
  file.path = tokens_.Text().substr(1, tokens_.current().end - tokens_.current().begin - 2);
  tokens_.Advance();
  ListBuilder<uint64_t> values(values_);
  while (tokens_.Accept(',')) {
    uint64_t value = 0;
    if (!ParseCount(tokens_, std::numeric_limits<uint64_t>::max(), "a number", value)) return false;
    values.Add(value);
  }
  file.timestamp_and_size = values.Finish(module_.arena());
  return true;
}

bool ModuleParser::ParseAlias(Alias& alias) {
  tokens_.Advance();
  return tokens_.ExpectIdentifier(alias.name, "the name of an alias") &&
         tokens_.Expect(',', "between alias and function") &&
         tokens_.ExpectIdentifier(alias.target, "the name of a function") && tokens_.Expect(';', "after .alias");
}

bool ModuleParser::ParseFunction(Linkage linkage, Item& item) {
  auto& function = item.node.emplace<Function>();
  function.linkage = linkage;
  function.is_entry = tokens_.IsDotted("entry");
  tokens_.Advance();
  names_.OpenScope();
  bool is_good = ParseFunctionHead(function);
  if (is_good && !tokens_.Accept(';')) {
    item.span.end = tokens_.consumed_end();
    function.has_body = tokens_.current().Is('{');
    is_good = function.has_body ? bodies_.ParseBody(function.body, function.open, function.close)
                                : tokens_.Fail("'{' or ';' after the head of a function");
  }
  names_.CloseScope();
  return is_good;
}

bool ModuleParser::ParseFunctionHead(Function& function) {
  ListBuilder<FunctionDirective> directives(directives_);
  if (!ParseFunctionDirectives(function, directives)) return false;
  if (tokens_.current().Is('(') && !declarations_.ParseParameters(function.returns)) return false;
  if (!tokens_.ExpectIdentifier(function.name, "the name of a function")) return false;
  if (!ParseFunctionDirectives(function, directives)) return false;
  if (tokens_.current().Is('(') && !declarations_.ParseParameters(function.parameters)) return false;
  if (!ParseFunctionDirectives(function, directives)) return false;
  function.directives = directives.Finish(module_.arena());
  return true;
}

bool ModuleParser::ParseFunctionDirectives(Function& function, ListBuilder<FunctionDirective>& directives) {
  while (tokens_.current().kind == TokenKind::kDotted) {
    if (tokens_.IsDotted("attribute")) {
      if (!declarations_.ParseAttributes(function.attributes)) return false;
      continue;
    }
    FunctionDirective directive;
    if (!ParseFunctionDirective(directive)) return false;
    directives.Add(directive);
  }
  return true;
}

bool ModuleParser::ParseFunctionDirective(FunctionDirective& directive) {
  directive.name = tokens_.DottedName();
  tokens_.Advance();
  if (tokens_.current().kind == TokenKind::kString) {
    if (!declarations_.ParseStrings(directive.strings)) return false;
    return directive.name != "pragma" || tokens_.Expect(';', "after .pragma");
  }
  if (tokens_.current().kind != TokenKind::kInteger) return true;
  ListBuilder<uint64_t> values(values_);
  do {
    uint64_t value = 0;
    if (!ParseCount(tokens_, std::numeric_limits<uint64_t>::max(), "a number", value)) return false;
    values.Add(value);
  } while (tokens_.Accept(','));
  directive.values = values.Finish(module_.arena());
  return true;
}

}  // namespace

Result<Module> ParseModule(std::string text, const ParseOptions& options) {
  if (const size_t nul = text.find('\0'); nul != std::string::npos) text.resize(nul);
  constexpr size_t kMaxOffset = std::numeric_limits<uint32_t>::max() - 16;
  const auto count = [&](char letter) { return static_cast<size_t>(std::count(text.begin(), text.end(), letter)); };
  if (count(';') > kMaxStatements || count('{') + count(':') > kMaxBeside)
    return Error(StatusCode::kResourceExhausted, fmt::format("PTX text has more than {} statements", kMaxStatements));
  if (text.size() > std::min(options.max_source_bytes, kMaxOffset))
    return Error(StatusCode::kResourceExhausted, fmt::format("PTX text of {} bytes is longer than the limit of {}",
                                                             text.size(), options.max_source_bytes));
  Module module(std::move(text));
  ModuleParser parser(module, options);
  if (Status status = parser.Parse(); !status.ok()) return std::unexpected(std::move(status));
  return module;
}

}  // namespace tally::ptx_transforms
