// Starting a thread where there may be none left: at the task limit of a user, a cgroup or the machine.
//
// std::thread throws then, and what nobody catches ends the process. So nothing of ours starts one another way (the
// client's room, which has no exceptions, asks pthread_create itself).
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/status.h"

namespace tally {

// `name` is what tools show, at most 15 characters of it. kResourceExhausted: no thread can be started now.
Result<std::thread> StartThread(const std::string& name, std::function<void()> run);

}  // namespace tally
