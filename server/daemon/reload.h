// SIGHUP: what of a configuration that was read again applies to the tallyd that runs.
#pragma once

#include <string>
#include <vector>

#include "server/daemon/config.h"

namespace tally::server {

struct Reload {
  DaemonConfig config;  // the running one, with everything changed that can be
  // Keys that differ: for sessions opened from now on; for executors started from now on; for the next tallyd only.
  std::vector<std::string> now, new_executors, needs_restart;

  // One line for the log: what changed, for whom, and what needs a restart.
  std::string Sentence() const;
};

// Both validated.
Reload PlanReload(const DaemonConfig& running, const DaemonConfig& wanted);

}  // namespace tally::server
