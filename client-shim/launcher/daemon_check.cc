#include "client-shim/launcher/daemon_check.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/unix_socket.h"
#include "proto/control/socket_paths.h"

namespace tally::launcher {

Status CheckDaemon(const std::string& socket, bool is_named) {
  const auto connection = ConnectUnix(socket);
  if (!connection) {
    if (connection.error().code() == StatusCode::kPermissionDenied) {
      return Status(StatusCode::kPermissionDenied,
                    fmt::format("the tallyd at '{}' belongs to another user and is not open to you: start your own "
                                "with 'tallyd', or use tally-run --embedded PROGRAM",
                                socket));
    }
    if (connection.error().code() == StatusCode::kInvalidArgument) return connection.error();
    return Status(StatusCode::kUnavailable,
                  fmt::format("no tallyd serves '{}': start one with 'tallyd &', or use tally-run --embedded PROGRAM "
                              "for a private one",
                              socket));
  }
  const auto daemon = GetPeerCredentials(connection->get());
  if (!daemon) return daemon.error();
  const bool is_own_place = socket != control::SystemSocket();
  if (!is_named && is_own_place && daemon->uid != ::geteuid() && daemon->uid != 0) {
    return Status(
        StatusCode::kPermissionDenied,
        fmt::format("the tallyd at '{}' is run by user {}, not by you: it is not used unless you name it with "
                    "--socket",
                    socket, daemon->uid));
  }
  return OkStatus();
}

}  // namespace tally::launcher
