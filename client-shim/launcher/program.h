// Is there such a program, can it be run, and will it load our library?
#pragma once

#include <string>

namespace tally::launcher {

struct Program {
  std::string path;     // as execv wants it; empty if it cannot be run
  int exit_status = 0;  // 126 or 127 as the shell says, if it cannot be run
  std::string error;    // then: one sentence
  std::string warning;  // it runs, but the loader will not give it our library: one sentence
};

// Looks `name` up as the shell does: in $PATH unless it has a slash.
Program FindProgram(const std::string& name);

}  // namespace tally::launcher
