// What the program's environment must say so that it loads our libcuda.so.1 and that library finds its tallyd.
#pragma once

#include <string>

#include "base/status.h"
#include "client-shim/launcher/options.h"

namespace tally::launcher {

// The directory with libcuda.so.1 and libcuda.so: $TALLY_CLIENT_DIR, else ../lib/tally/client beside tally-run.
Result<std::string> FindClientDirectory();

// Sets LD_LIBRARY_PATH, LD_PRELOAD, TRITON_LIBCUDA_PATH and TALLY_* in this process, for a program that it then becomes
// or starts. What the variables held before stays, behind ours.
Status PrepareEnvironment(const Options& options, const std::string& client_directory, const std::string& socket);

}  // namespace tally::launcher
