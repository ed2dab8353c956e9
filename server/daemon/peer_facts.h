// What /proc says about who has connected, beyond its credentials: for the exemption of root, for where programs run
// that are known (long_blocks.h), and for people.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/unix_socket.h"

namespace tally::server {

inline constexpr size_t kMaxCgroupLetters = 255;

// User 0 of the machine, or of whatever tallyd itself is in; not that of a container: a process whose process
// namespace is another one than tallyd's. Where /proc does not say it for sure, it is a container's. `socket`: whose
// peer it is.
bool IsRootOfTheMachine(int socket, const PeerCredentials& peer);

// For tests: whether a file like /proc/PID/status is that of a process in a process namespace below the reader's.
// True if it does not say.
bool IsInAnotherNamespace(std::string_view status_file);

// The control group of a process: printable, bounded, the end of it where it is too long. Empty: not known. A program
// may choose a part of it, and its number may be another's by now: for people, not for trust.
std::string CgroupOf(pid_t pid);
// For tests: from a file like /proc/PID/cgroup.
std::string CgroupIn(std::string_view cgroup_file);

// What a process was started as: its executable, where /proc shows it (of other users' to root alone), and its command
// line, of which the first 16 KiB count and which a program may change. Empty: not known.
std::string StartedAs(pid_t pid);

}  // namespace tally::server
