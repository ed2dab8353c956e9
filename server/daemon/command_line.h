// tallyd's flags. `--help` is the manual's short form: docs/tallyd.md has the long one.
#pragma once

#include <optional>
#include <variant>

#include "server/daemon/config.h"

namespace tally::server {

// Either a validated configuration, or the exit status of a run that ends here (help, version, a usage error: the text
// has then been printed).
std::variant<DaemonConfig, int> ParseDaemonCommandLine(int argc, char** argv);

}  // namespace tally::server
