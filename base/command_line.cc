#include "base/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>
#include <vector>

#include "base/log_prefixes.h"
#include "base/nearest_word.h"

namespace tally {
namespace {

constexpr size_t kNameWidth = 30;
constexpr size_t kLineWidth = 100;

// CLI11 appends what a check allows.
std::string TypeOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// "FILE"; of a flag that may be given a value "[=FILE]", of others nothing.
std::string ValueOf(const CLI::Option& option) {
  const std::string type = TypeOf(option);
  return TakesValue(option) || type.empty() ? type : fmt::format("[={}]", type);
}

std::string NamesOf(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true, false);
  const std::string names = option.get_name(false, true);
  return names.substr(0, names.find('{'));  // CLI11 puts there what a flag without a value means
}

// Words on lines of kLineWidth at most, all but the first indented.
std::string Wrapped(const std::string& text, size_t indent) {
  std::string lines;
  size_t width = indent;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (width > indent && width + 1 + word.size() > kLineWidth) {
      lines += fmt::format("\n{:{}}", "", indent);
      width = indent;
    } else if (width > indent) {
      lines += ' ';
      ++width;
    }
    lines += word;
    width += word.size();
  }
  return lines;
}

std::string Entry(const std::string& name, const std::string& description) {
  const std::string start = "  " + name;
  const std::string text = Wrapped(description, kNameWidth);
  return start.size() + 1 < kNameWidth ? fmt::format("{:<{}}{}\n", start, kNameWidth, text)
                                       : fmt::format("{}\n{:{}}{}\n", start, "", kNameWidth, text);
}

std::string UsageOf(const CLI::App& app, const std::string& name) {
  std::string usage = name + " [OPTIONS]";
  for (const CLI::Option* option : app.get_options([](const CLI::Option* one) { return one->get_positional(); })) {
    usage += option->get_required() ? fmt::format(" {}", NamesOf(*option)) : fmt::format(" [{}]", NamesOf(*option));
  }
  return app.get_subcommands([](const CLI::App*) { return true; }).empty() ? usage : usage + " COMMAND";
}

class HelpFormatter final : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::string usage) : usage_(std::move(usage)) { label("Positionals", "Arguments"); }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    const bool is_whole = app->get_parent() == nullptr;
    return fmt::format("Usage: {}\n", is_whole && !usage_.empty() ? usage_ : UsageOf(*app, name));
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const std::string value = is_positional ? "" : (TakesValue(*option) ? " " : "") + ValueOf(*option);
    return Entry(NamesOf(*option) + value, option->get_description());
  }
  std::string make_footer(const CLI::App* app) const override {
    const std::string footer = app->get_footer();
    return footer.empty() ? "" : footer.substr(footer.find_first_not_of('\n')) + "\n";
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return Entry(command->get_name(), command->get_description());
  }

 private:
  std::string usage_;
};

template <typename Visit>
void ForEachApp(CLI::App& app, const Visit& visit) {
  visit(app);
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) ForEachApp(*command, visit);
}

std::string Escaped(const std::string& text) {
  std::string line;
  for (const char letter : text) line += letter == '\n' ? "\\n" : letter == '\t' ? " " : std::string(1, letter);
  return line;
}

// One line for each thing, its fields separated by tabs. Read by docs/manual.
void Describe(const CLI::App& app, const std::string& name, const std::string& usage) {
  fmt::print("{}\t{}\t{}\t{}\n", app.get_parent() == nullptr ? "program" : "command", name,
             usage.empty() ? UsageOf(app, name) : usage, Escaped(app.get_description()));
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    fmt::print("{}\t{}\t{}\t{}\n", option->get_positional() ? "argument" : "option", NamesOf(*option), ValueOf(*option),
               Escaped(option->get_description()));
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    Describe(*command, name + " " + command->get_name(), "");
  }
  if (app.get_parent() == nullptr) fmt::print("footer\t{}\n", Escaped(app.get_footer()));
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& words) {
  const std::string nearest = NearestWord(word, words);
  return nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest);
}

// The apps of the commands that were given so far, the whole program's first.
std::vector<const CLI::App*> Given(const CLI::App& app) {
  std::vector<const CLI::App*> given = {&app};
  while (!given.back()->get_subcommands().empty()) given.push_back(given.back()->get_subcommands().front());
  return given;
}

std::string Mistake(const CLI::App& app, const CLI::ParseError& error) {
  if (const auto words = app.remaining(/*recurse=*/true); !words.empty()) return Unknown(app, words.front());
  const CLI::App& innermost = *Given(app).back();
  const bool needs_command = innermost.get_require_subcommand_min() > 0 && error.get_name() == "RequiredError";
  return needs_command ? "say what to do: a command" : error.what();
}

}  // namespace

std::string Unknown(const CLI::App& app, const std::string& word) {
  std::vector<std::string> words;
  const std::vector<const CLI::App*> given = Given(app);
  if (word.starts_with("-")) {
    for (const CLI::App* one : given) {
      for (const CLI::Option* option : one->get_options()) {
        for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
      }
    }
    const std::string name = word.substr(0, word.find('='));
    return fmt::format("there is no option '{}'{}", name, DidYouMean(name, words));
  }
  for (const CLI::App* command : given.back()->get_subcommands([](const CLI::App*) { return true; })) {
    words.push_back(command->get_name());
  }
  if (words.empty()) return fmt::format("'{}' is one argument too many", word);
  return fmt::format("there is no command '{}'{}", word, DidYouMean(word, words));
}

std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv, const CommandLineStyle& style) {
  const auto formatter = std::make_shared<HelpFormatter>(style.usage);
  ForEachApp(app, [&](CLI::App& one) {
    one.formatter(formatter);
    if (one.get_parent() != nullptr) one.group("Commands")->footer("");  // which it has from its parent
    one.get_help_ptr()->description("print this help");
  });
  if (CLI::Option* version = app.get_option_no_throw("--version")) version->description("print the version");
  if (argc == 2 && std::strcmp(argv[1], "--describe") == 0) {
    Describe(app, app.get_name(), style.usage);
    return 0;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    fmt::print(stderr, "{0}{1}: {2}. '{1} --help' says more.\n", LogPrefix(LogLevel::kError), app.get_name(),
               Mistake(app, error));
    return style.wrong_usage;
  }
  return std::nullopt;
}

}  // namespace tally
