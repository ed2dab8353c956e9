// tally-run's command line and the environment variables that stand in for options.
#pragma once

#include <string>
#include <variant>
#include <vector>

namespace tally::launcher {

struct Options {
  std::string socket;      // empty: where FindSocket() of proto/control/socket_paths.h looks
  std::string priority;    // "high", "best-effort"; empty: tallyd decides
  std::string weight;      // a number; empty: the default
  std::string level;       // likewise
  std::string slo;         // an objective like "p99=2ms", which tallyd reads; empty: none
  std::string transforms;  // "none", or empty: as tallyd says
  std::string turnaround;  // in microseconds, as a number; empty: as tallyd says
  std::string window;      // "off", "shadow", "on"; empty: off
  std::string graphs;      // "off", "partitions", "spread"; empty: partitions
  std::string hints;       // "off", "on"; empty: off
  std::string memory;      // a size like "8G"; empty: as tallyd says
  std::string share;       // of GPU time, like "30%"; empty: as tallyd says
  std::string domain;      // empty: the domain of the class
  std::string tenant;      // empty: the program's name
  std::string driver;      // embedded only: "auto", "cuda", "sim"
  bool is_embedded = false;
  bool is_quiet = false;
  bool makes_kernelspec = false;      // instead of starting something (jupyter.h)
  bool is_apart = false;              // each process in an executor of its own
  std::vector<std::string> as_given;  // the options on the command line, for that
  std::vector<std::string> command;   // the program and its arguments; at least one, but for a kernelspec
};

// The options, or the exit status of a run that ends here (the text has then been printed). Options after the program's
// name are the program's.
std::variant<Options, int> ParseCommandLine(int argc, char** argv);

}  // namespace tally::launcher
