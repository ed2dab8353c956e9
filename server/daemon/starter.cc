#include "server/daemon/starter.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/log.h"

namespace tally::server {

void NotifyServiceManager(const std::string& state) {
  const int sent = ::sd_notify(/*unset_environment=*/0, state.c_str());
  if (sent < 0) LOG_WARNING("cannot tell the service manager '{}': {}", state, std::strerror(-sent));
}

void WriteReadyLine(int fd, const std::string& line) {
  if (fd < 0) return;
  const std::string text = line + "\n";
  if (::write(fd, text.data(), text.size()) < 0) LOG_WARNING("--ready-fd {}: {}", fd, std::strerror(errno));
  ::close(fd);
}

Result<std::optional<ActivatedSocket>> TakeActivatedSocket(const std::string& path, const std::string& plain_path) {
  const int count = ::sd_listen_fds(/*unset_environment=*/1);
  if (count < 0) return std::unexpected(StatusFromErrno(-count, "take the sockets of the service manager"));
  if (count == 0) return std::nullopt;
  std::vector<UniqueFd> fds;  // all of them, so that none is left open
  for (int i = 0; i < count; ++i) fds.emplace_back(SD_LISTEN_FDS_START + i);
  if (count > 1) {
    return Error(
        StatusCode::kInvalidArgument,
        fmt::format("the service manager passed {} sockets and tallyd serves one: leave one ListenSequentialPacket= "
                    "in tally.socket",
                    count));
  }
  if (::sd_is_socket(fds[0].get(), AF_UNIX, SOCK_SEQPACKET, /*listening=*/1) <= 0) {
    return Error(
        StatusCode::kInvalidArgument,
        fmt::format("the socket that the service manager passed is no listening UNIX socket of sequential packets: "
                    "tally.socket must say ListenSequentialPacket={}",
                    path));
  }
  for (const std::string& place : {path, plain_path}) {
    if (::sd_is_socket_unix(fds[0].get(), SOCK_SEQPACKET, /*listening=*/1, place.c_str(), /*length=*/0) > 0) {
      return ActivatedSocket{std::move(fds[0]), place};
    }
  }
  return Error(
      StatusCode::kInvalidArgument,
      fmt::format("the service manager passed a socket with another path than '{}': ListenSequentialPacket= in "
                  "tally.socket must say so, or \"socket\" in the configuration must be another",
                  path));
}

}  // namespace tally::server
