// What a launch touches as its program declares it: boxes that nobody has looked at become accesses, or a barrier.
//
// A declaration that is wrong harms its program only: the window holds launches of one session, and no kernel may do
// more for having been declared. So all that is asked is that memory is the session's own, as for what PTX says.
#pragma once

#include "server/executor/issue/launch_accesses.h"
#include "server/executor/issue/pending_launch.h"

namespace tally::server {

// Of `launch` its flags and declared boxes count. Not null: why nothing may run beside it, as LaunchAccesses::barrier;
// `*accesses` means nothing then. What that has of memory it keeps.
const char* FindDeclared(const PendingLaunch& launch, const LaunchMemory& memory, LaunchAccesses* accesses);

}  // namespace tally::server
