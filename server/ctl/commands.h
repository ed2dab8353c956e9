// tallyctl's commands: one function per command, which declares its arguments and returns what carries it out. main.cc
// has the table of them.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>

namespace tally::cli {

// What holds for every command.
struct Invocation {
  std::string socket;  // tallyd's client socket, found if it was not named
  bool as_json = false;
};

// Returns the exit status; what failed has then been said in one sentence on stderr.
using Action = std::function<int(const Invocation&)>;

Action DeclarePs(CLI::App& app);
Action DeclareTop(CLI::App& app);
Action DeclarePreemptibility(CLI::App& app);
Action DeclareSetPriority(CLI::App& app);
Action DeclareSetWeight(CLI::App& app);
Action DeclareSetLevel(CLI::App& app);
Action DeclareExecutors(CLI::App& app);
Action DeclareTotals(CLI::App& app);
Action DeclareVersion(CLI::App& app);
Action DeclareKernels(CLI::App& app);
Action DeclareSetTurnaround(CLI::App& app);
Action DeclareTrace(CLI::App& app);
Action DeclareWindow(CLI::App& app);
Action DeclareGraphs(CLI::App& app);
Action DeclareGraph(CLI::App& app);
Action DeclareGrant(CLI::App& app);
Action DeclareDoctor(CLI::App& app);
Action DeclareCdi(CLI::App& app);

}  // namespace tally::cli
