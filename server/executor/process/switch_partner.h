// The best-effort process of tally-switch-test: it fills the GPU with kernels of 10 ms, and does to its contexts what
// it is told over a pipe.
#pragma once

#include <chrono>

namespace tally::server {

// With the driver's time slices, with short ones, descheduled, going on, at rest; and, at rest, whether what is
// descheduled in the middle of its work gets on with it. Each is answered.
constexpr char kOwn = 'o', kShort = 's', kDeschedule = 'h', kGoOn = 'g', kRest = 'r', kGetOn = 'n';
constexpr char kReady = '+', kFailed = '-';

bool Tell(int fd, char word);
// False: nothing within the limit.
bool Hear(int fd, char* word, std::chrono::milliseconds limit);

// Says whether the GPU can be used, then obeys. Ends with the pipe.
[[noreturn]] void BeBestEffort(int commands, int answers);

}  // namespace tally::server
