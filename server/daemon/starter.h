// What tallyd and whoever started it say to one another: systemd, through libsystemd, or a program with `--ready-fd`.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tally::server {

// Tells the service manager `state` ("READY=1", "STOPPING=1", lines joined by \n); nothing where there is none.
void NotifyServiceManager(const std::string& state);
// Writes `line` and a newline to `fd`, then closes it; nothing for -1.
void WriteReadyLine(int fd, const std::string& line);

struct ActivatedSocket {
  UniqueFd fd;
  std::string path;
};

// The clients' socket as the service manager has made it (tally.socket); none where it made none. It must be one
// listening socket of our kind at `path`, or at `plain_path` as units of older versions say: anything else is an error
// that says what to change. Asks the environment once: whoever calls again, and every child, finds nothing there.
Result<std::optional<ActivatedSocket>> TakeActivatedSocket(const std::string& path, const std::string& plain_path);

}  // namespace tally::server
