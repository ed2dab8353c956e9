// tally-executor's flags: tallyd is who gives them.
#pragma once

#include <chrono>
#include <string>
#include <variant>

#include "server/executor/executor_config.h"

namespace tally::server {

struct ExecutorOptions {
  ExecutorConfig config;   // without its callbacks
  uint32_t owner_uid = 0;  // whose domain; control::kSharedDomain: everybody's
  std::string control_socket;
  std::chrono::seconds idle{60};  // without sessions for this time: end
  // Of contexts. What is on the GPU stands still while one is made (docs/driver-waits.md).
  bool makes_few_gpu_channels = false;
  bool deschedules = false;  // descheduler.h
  bool refreshes = false;    // refresher.h
  // Work of a session whose client is gone ends the executor after this time; zero: never (departed_work.h).
  std::chrono::seconds departed_work_limit{10};
  pid_t exit_with_parent = 0;  // not 0: end with that parent (private daemon)
};

// The options, or the exit status of a run that ends here (the text has then been printed).
std::variant<ExecutorOptions, int> ParseExecutorCommandLine(int argc, char** argv);

}  // namespace tally::server
