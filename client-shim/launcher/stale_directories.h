// Directories of private daemons: who removes them, whatever was killed.
#pragma once

#include <chrono>
#include <string>

namespace tally::launcher {

inline constexpr const char* kPrivateDirectoryPrefix = "tally-run-";

// With everything in it.
void RemovePrivateDirectory(const std::string& path);

// Removes the directories in `parent` that belong to us and whose daemon and executors are gone. Where no daemon has
// been yet, one may be about to start: that takes `start_limit` at most.
void RemoveStaleDirectories(const std::string& parent, std::chrono::milliseconds start_limit);

}  // namespace tally::launcher
