#include "base/unix_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tally {
namespace {

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Error(StatusCode::kInvalidArgument,
                 fmt::format("socket path '{}' must have 1 to {} characters", path, sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<UniqueFd> NewSocket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return std::unexpected(StatusFromErrno(errno, "create socket"));
  return fd;
}

// Zero: none.
void SetSendLimit(int fd, std::chrono::microseconds limit) {
  const timeval value{limit.count() / 1'000'000, limit.count() % 1'000'000};
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof(value));
}

}  // namespace

Result<UniqueFd> ListenUnix(const std::string& path, mode_t mode) {
  auto address = AddressOf(path);
  if (!address) return std::unexpected(address.error());
  const auto present = ConnectUnix(path, std::chrono::milliseconds(1));
  if (present || present.error().code() == StatusCode::kDeadlineExceeded) {
    return Error(StatusCode::kAlreadyExists, fmt::format("'{}' is in use by a running process", path));
  }
  struct stat existing {};
  if (::lstat(path.c_str(), &existing) == 0 && S_ISSOCK(existing.st_mode)) ::unlink(path.c_str());
  auto fd = NewSocket();
  if (!fd) return fd;
  if (::bind(fd->get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    return std::unexpected(StatusFromErrno(errno, fmt::format("bind '{}'", path)));
  }
  if (::chmod(path.c_str(), mode) != 0) return std::unexpected(StatusFromErrno(errno, fmt::format("chmod '{}'", path)));
  if (::listen(fd->get(), SOMAXCONN) != 0)
    return std::unexpected(StatusFromErrno(errno, fmt::format("listen '{}'", path)));
  return fd;
}

Result<UniqueFd> ConnectUnix(const std::string& path, std::chrono::milliseconds limit) {
  auto address = AddressOf(path);
  if (!address) return std::unexpected(address.error());
  auto fd = NewSocket();
  if (!fd) return fd;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    using std::chrono::microseconds;
    const auto left = std::chrono::ceil<microseconds>(deadline - std::chrono::steady_clock::now());
    SetSendLimit(fd->get(), std::max(left, microseconds(1)));
    if (::connect(fd->get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0) break;
    if (errno == EINTR) continue;  // with a limit, whatever the program's signal handlers ask for
    if (errno != EAGAIN) return std::unexpected(StatusFromErrno(errno, fmt::format("connect to '{}'", path)));
    return Error(StatusCode::kDeadlineExceeded,
                 fmt::format("'{}' has not accepted a connection in {} ms", path, limit.count()));
  }
  SetSendLimit(fd->get(), std::chrono::microseconds(0));
  return fd;
}

Result<UniqueFd> AcceptUnix(int listening_fd) {
  UniqueFd fd(::accept4(listening_fd, nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.valid()) return std::unexpected(StatusFromErrno(errno, "accept"));
  return fd;
}

Result<SocketPair> CreateSocketPair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return std::unexpected(StatusFromErrno(errno, "socketpair"));
  }
  return SocketPair{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Result<PeerCredentials> GetPeerCredentials(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return std::unexpected(StatusFromErrno(errno, "peer credentials"));
  }
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

Status SendMessage(int fd, std::span<const std::byte> bytes, std::span<const int> fds) {
  if (bytes.empty() || bytes.size() > kMaxMessageBytes || fds.size() > kMaxMessageFds) {
    return Status(StatusCode::kInvalidArgument, "message too large");
  }
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxMessageFds)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return StatusFromErrno(errno, "send");
  return OkStatus();
}

Result<ReceivedMessage> ReceiveMessage(int fd, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    int wait_ms = -1;
    if (timeout.count() >= 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      wait_ms = left.count() > 0 ? static_cast<int>(left.count()) : 0;
    }
    pollfd ready{fd, POLLIN, 0};
    const int count = ::poll(&ready, 1, wait_ms);
    if (count > 0) break;
    if (count == 0) return Error(StatusCode::kDeadlineExceeded, "no message in time");
    if (errno != EINTR) return std::unexpected(StatusFromErrno(errno, "poll"));
  }
  ReceivedMessage result;
  result.bytes.resize(kMaxMessageBytes);
  iovec part{result.bytes.data(), result.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxMessageFds)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received = 0;
  bool is_again = false, was_reset = false;
  do {
    received = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    // A peer that is gone and had not read all says so once, before what it had sent.
    is_again = received < 0 && (errno == EINTR || (errno == ECONNRESET && !std::exchange(was_reset, true)));
  } while (is_again);
  if (received < 0) return std::unexpected(StatusFromErrno(errno, "receive"));
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t num_fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < num_fds; ++i) {
      int received_fd = -1;
      std::memcpy(&received_fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      result.fds.emplace_back(received_fd);
    }
  }
  if (received == 0) return Error(StatusCode::kUnavailable, "peer closed the connection");
  if ((message.msg_flags & MSG_TRUNC) != 0) return Error(StatusCode::kInvalidArgument, "message too large");
  // The kernel does not tell the two apart.
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return Error(StatusCode::kResourceExhausted,
                 "its descriptors did not arrive: too many, or this process may open no more files");
  }
  result.bytes.resize(static_cast<size_t>(received));
  return result;
}

bool PeerHungUp(int fd) {
  pollfd state{fd, POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) != 0;
}

}  // namespace tally
