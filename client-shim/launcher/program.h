// Is there such a program, can it be run, and will it load our library?
#pragma once

#include <string>

namespace tally::launcher {

struct Program {
  std::string path;     // as execv wants it; empty if it cannot be run
  std::string image;    // what the kernel loads for it: the program, or what interprets the script
  std::string loader;   // the dynamic loader that `image` names; empty if the kernel has to say what is wrong with it
  int exit_status = 0;  // if it cannot be run: 126 or 127 as the shell says, 1 if only Tally is in the way
  std::string error;    // then: one sentence
  std::string warning;  // it runs, but the loader will not give it our library: one sentence
};

// Looks `name` up as the shell does: in $PATH unless it has a slash.
Program FindProgram(const std::string& name);

}  // namespace tally::launcher
