// tallyd, wired together. Reads from top to bottom as what a daemon does in its life.
#pragma once

#include "server/daemon/command_line.h"

namespace tally::server {

// Serves until SIGTERM or SIGINT; returns the exit status. Call once, from main, before
// any thread exists: signals are blocked and the file mode mask is set for the whole process.
int RunDaemon(const DaemonStart& start);

}  // namespace tally::server
