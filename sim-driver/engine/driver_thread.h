// Threads of the driver in a process that is somebody else's.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/status.h"

namespace tally::sim_driver {

// The process's signals are for its own threads. Not so those that a thread's own access or instruction raises: where
// they are blocked the kernel ends the process instead of asking its handler. kResourceExhausted: as StartThread.
Result<std::thread> StartDriverThread(const std::string& name, std::function<void()> run);

}  // namespace tally::sim_driver
