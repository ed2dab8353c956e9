// Where our libcuda.so.1 is on this machine.
#pragma once

#include <string>

#include "base/status.h"

namespace tally::cli {

// Links followed: in $TALLY_CLIENT_DIR, else in ../lib/tally/client beside tallyctl. kNotFound says where it is not.
Result<std::string> FindClientLibrary();

}  // namespace tally::cli
