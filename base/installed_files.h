// Where the files installed with the program of ours that runs are. Thread-safe while nobody changes the environment.
#pragma once

#include <string>

namespace tally {

// The directory of this program's file, without a slash at its end; "." if that cannot be told.
std::string ProgramDirectory();

// The directory with our libcuda.so.1: $TALLY_CLIENT_DIR, else lib/tally/client beside the program's directory.
// Whether it is there is not looked at.
std::string ClientDirectory();

}  // namespace tally
