// Where clients connect: reads the hello, checks it, and gives the client a session with the executor of its domain.
//
// Every byte a client sends is hostile. A client that is refused gets one sentence that says why; one that says nothing
// for kHelloLimit is hung up on, and so is the oldest of those that say nothing where a user has too many of them. Who
// has said hello is never hung up on: quotas bound those. Lives on the daemon's loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/event_loop.h"
#include "base/unix_socket.h"
#include "server/daemon/config.h"
#include "server/daemon/executor_pool.h"
#include "server/daemon/runtime_dir.h"

namespace tally::server {

class ClientListener {
 public:
  static constexpr std::chrono::seconds kHelloLimit{5};
  // Connections that have said nothing yet: of one user, of all users that may have no session, of everybody.
  static constexpr size_t kMaxSilentPerUser = 64;
  static constexpr size_t kMaxSilentStrangers = 16;
  static constexpr size_t kMaxSilent = 512;

  // All must outlive the listener.
  ClientListener(EventLoop& loop, const DaemonConfig& config, ExecutorPool& pool, RuntimeDir& runtime_dir);

  // Makes the socket, or takes `activated`, which the service manager has made there and keeps.
  Status Listen(const std::string& socket_path, std::optional<UniqueFd> activated);
  // For sessions opened from now on: users, limits, the default class (reload.h).
  void Reconfigure(const DaemonConfig& config);
  // No client is accepted after this; those that wait for their session are answered by the pool. Removes the socket,
  // unless it is the service manager's.
  void StopListening();

  // Sessions refused since the start, by StatusCodeName.
  const std::map<std::string, uint64_t>& refusals() const { return refusals_; }

 private:
  struct Pending {
    UniqueFd socket;
    PeerCredentials peer;
    std::chrono::steady_clock::time_point since;
    bool has_said_hello = false;
    // Its user may have no session, and was told so. It stays for what it may be sending: with that unread, the end of
    // the connection would come before the sentence.
    bool is_refused = false;
  };
  // By user; all that are refused together.
  using SilentUser = uid_t;
  static constexpr SilentUser kStrangers = UINT32_MAX;

  void OnConnection();
  void OnReadable(uint64_t pending_id);
  void OnHello(uint64_t pending_id, const shm::HelloRequest& hello);
  Status CheckBuild(const shm::HelloRequest& hello) const;
  bool IsAllowed(uid_t uid) const;
  struct Placement {
    Domain domain;
    shm::PriorityClass session_class;
  };
  Result<Placement> Place(const shm::HelloRequest& hello, uid_t uid) const;
  // Answers, counts, and logs: a flood is a few lines a second.
  void Answer(const Pending& pending, const Status& why);
  void Refuse(uint64_t pending_id, const Status& why);
  void Drop(uint64_t pending_id);
  void NoLongerSilent(uint64_t pending_id, const Pending& pending);
  void MakeRoomFor(SilentUser user);
  void HangUpOnTheSilent();

  EventLoop& loop_;
  DaemonConfig config_;
  ExecutorPool& pool_;
  RuntimeDir& runtime_dir_;
  UniqueFd listening_;
  std::string own_socket_path_;  // empty: the service manager's
  uint64_t next_pending_id_ = 1;
  std::map<uint64_t, Pending> pending_;              // by order of arrival
  std::map<SilentUser, std::set<uint64_t>> silent_;  // those of pending_ that have said nothing; no set is empty
  bool is_timer_set_ = false;
  std::map<std::string, uint64_t> refusals_;
  std::chrono::steady_clock::time_point log_second_{};  // in which num_logged_ refusals were logged
  uint64_t num_logged_ = 0;
};

}  // namespace tally::server
