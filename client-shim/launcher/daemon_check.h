// Is a tallyd there that this user may trust and use? Asked before the program starts, so that the answer is a sentence
// and not a CUDA error.
#pragma once

#include <string>

#include "base/status.h"

namespace tally::launcher {

// `is_named`: the user named the socket, and so says that he trusts it. Otherwise a daemon in the user's own directory
// must be the user's (or root's), or another user could have put it there.
Status CheckDaemon(const std::string& socket, bool is_named);

}  // namespace tally::launcher
