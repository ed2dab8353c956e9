// tallyd's flags. `--help` is the manual's short form: docs/tallyd.md has the long one.
#pragma once

#include <functional>
#include <variant>

#include "server/daemon/config.h"

namespace tally::server {

struct DaemonStart {
  DaemonConfig config;
  // The same file and flags read again; empty where no file was named.
  std::function<Result<DaemonConfig>()> read_again;
};

// Either a validated configuration, or the exit status of a run that ends here (help, version, a usage error: the text
// has then been printed).
std::variant<DaemonStart, int> ParseDaemonCommandLine(int argc, char** argv);

}  // namespace tally::server
