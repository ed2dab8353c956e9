// What all our programs do alike with their command lines: help that can be read, one sentence for a mistake with what
// was probably meant, and a description of themselves from which man pages and completion are made.
//
// A target of its own, tally_command_line: nothing that is loaded into other people's processes has a command line.
//
// The type of an option (CLI::Option::type_name) is a word for what it takes, in capitals: SOCKET, FILE, SECONDS; or
// the words there are to choose from: "high|best-effort". Completion follows from it. A flag with a type may be given a
// value behind '='.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>

namespace tally {

struct CommandLineStyle {
  std::string usage = "";  // empty: made from the options
  int wrong_usage = 2;     // exit status
};

// Parses. Returns the exit status of a run that ends here, its text printed: help, version, a mistake; or --describe,
// which only the build uses. Nothing: the program goes on.
std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv, const CommandLineStyle& style = {});

// "there is no option '--sokcet' (did you mean --socket?)", or the like for a command or an argument.
std::string Unknown(const CLI::App& app, const std::string& word);

}  // namespace tally
