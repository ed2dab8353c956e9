// UNIX-domain SOCK_SEQPACKET sockets that carry small fixed messages and file descriptors.
//
// A message is one datagram of at most kMaxMessageBytes with at most kMaxMessageFds descriptors: boundaries are kept by
// the kernel, so there is no framing to get wrong. Not thread-safe per socket and direction.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tally {

inline constexpr size_t kMaxMessageBytes = 4096;
inline constexpr size_t kMaxMessageFds = 4;

// Who is at the other end, as the kernel says (SO_PEERCRED); cannot be forged.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

struct ReceivedMessage {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> fds;
};

// Listens at `path` (replaced if it is a stale socket of ours), created with `mode`.
Result<UniqueFd> ListenUnix(const std::string& path, mode_t mode);
// Where more wait to be accepted than the listener allows for, waits too: kDeadlineExceeded after `limit`.
Result<UniqueFd> ConnectUnix(const std::string& path, std::chrono::milliseconds limit = std::chrono::seconds(60));
Result<UniqueFd> AcceptUnix(int listening_fd);
struct SocketPair {
  UniqueFd first;
  UniqueFd second;
};
Result<SocketPair> CreateSocketPair();

Result<PeerCredentials> GetPeerCredentials(int fd);
Status SendMessage(int fd, std::span<const std::byte> bytes, std::span<const int> fds = {});
// Waits at most `timeout` (negative: for ever). kUnavailable when the peer is gone, kDeadlineExceeded on time-out,
// kInvalidArgument for a truncated message or too many descriptors (all received ones are closed).
Result<ReceivedMessage> ReceiveMessage(int fd, std::chrono::milliseconds timeout);
// True once the peer has closed its end. Does not consume anything, does not block.
bool PeerHungUp(int fd);

}  // namespace tally
