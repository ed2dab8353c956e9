// Running the program as a child and behaving as if one were the program.
#pragma once

#include <string>
#include <vector>

#include "client-shim/launcher/program.h"

namespace tally::launcher {

// Blocks the signals that a Supervise() in this process passes on. Call before the daemon is started: a signal that
// arrives meanwhile is then passed on, and not deadly while something would be left behind.
void HoldSignals();

// Starts the program, passes signals that other processes send us on to it (the terminal sends them to it by itself),
// and waits for its end. Returns the wait status.
int Supervise(const Program& program, const std::vector<std::string>& command);

// Ends this process as the program ended: the same exit status or the same signal.
[[noreturn]] void EndAs(int wait_status);

// Becomes the program. Returns only on failure: the exit status, after one sentence on stderr.
int Become(const Program& program, const std::vector<std::string>& command);

}  // namespace tally::launcher
