// Telling whoever started tallyd that clients can connect: systemd (sd_notify's protocol) and `--ready-fd`.
#pragma once

#include <string>

namespace tally::server {

// Sends `state` ("READY=1", "STOPPING=1", lines joined by \n) to $NOTIFY_SOCKET; nothing without one.
void NotifyServiceManager(const std::string& state);
// Writes `line` and a newline to `fd`, then closes it; nothing for -1.
void WriteReadyLine(int fd, const std::string& line);

}  // namespace tally::server
