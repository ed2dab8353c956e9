// The life of one tally-executor process around its Executor: sessions in, reports out, and when to end.
//
// It ends when tallyd says so; when it had no session for the idle time (asking tallyd first, if there is one); a
// moment after its context was lost; on SIGTERM.
#pragma once

#include "server/executor/process/command_line.h"

namespace tally::server {

// Returns the exit status. Call once, from main, before any thread exists (it blocks signals for all threads).
int RunDomainProcess(ExecutorOptions options);

}  // namespace tally::server
