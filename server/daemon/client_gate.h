// Where clients connect: reads the hello, checks it, and gives the client a session with the executor of its domain.
//
// Every byte a client sends is hostile. A client that is refused gets one sentence that says why; one that says nothing
// for kHelloLimit is hung up on. Lives on the daemon's loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/event_loop.h"
#include "base/unix_socket.h"
#include "server/daemon/config.h"
#include "server/daemon/executor_pool.h"
#include "server/daemon/runtime_dir.h"

namespace tally::server {

class ClientGate {
 public:
  static constexpr std::chrono::seconds kHelloLimit{5};
  // Connections that have not got their session yet; the oldest is hung up on beyond that.
  static constexpr size_t kMaxPending = 256;

  // All must outlive the gate.
  ClientGate(EventLoop& loop, const DaemonConfig& config, ExecutorPool& pool, RuntimeDir& runtime_dir);

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
  };

  void OnConnection();
  void OnReadable(uint64_t pending_id);
  void OnHello(uint64_t pending_id, const shm::HelloRequest& hello);
  Status CheckBuild(const shm::HelloRequest& hello) const;
  Status CheckQuotas(uid_t uid) const;
  struct Placement {
    Domain domain;
    shm::PriorityClass session_class;
  };
  Result<Placement> Place(const shm::HelloRequest& hello, uid_t uid) const;
  void Refuse(uint64_t pending_id, const Status& why);
  void Reply(uint64_t pending_id, uint64_t session_id, const Status& status, int session_socket);
  void Drop(uint64_t pending_id);
  void HangUpOnTheSilent();

  EventLoop& loop_;
  DaemonConfig config_;
  ExecutorPool& pool_;
  RuntimeDir& runtime_dir_;
  UniqueFd listening_;
  std::string own_socket_path_;  // empty: the service manager's
  uint64_t next_pending_id_ = 1;
  std::map<uint64_t, Pending> pending_;  // by order of arrival
  bool is_timer_set_ = false;
  std::map<std::string, uint64_t> refusals_;
};

}  // namespace tally::server
