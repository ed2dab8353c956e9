// What runs in a mirror's process: the program that Mirror::Start() starts calls RunMirror() when its first argument is
// kMirrorFlag.
#pragma once

#include <chrono>
#include <functional>

namespace tally::server {

// The program's arguments: its name, this, the device's ordinal, and which driver (DriverLibraries, in its order).
inline constexpr const char* kMirrorFlag = "--mirror";
inline constexpr int kNumMirrorArguments = 6;
inline constexpr int kMirrorPageFd = 3;
inline constexpr int kMirrorSocketFd = 4;

// Serves home until it is gone. The exit status. `want_time_slice`: as MirrorService has it.
int RunMirror(int argc, char** argv, const std::function<void(std::chrono::microseconds)>& want_time_slice);
// Whether the arguments ask for a mirror.
bool IsMirror(int argc, char** argv);

}  // namespace tally::server
