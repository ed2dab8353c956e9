// Where clients connect: reads the hello, checks it, and gives the client a session with the executor of its domain.
//
// There is one socket for everybody, where a client is its user, and one for each grant, where it is the grant's
// tenant.
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
#include <utility>

#include "base/event_loop.h"
#include "base/unix_socket.h"
#include "proto/shm/tenant_view_abi.h"
#include "server/daemon/config.h"
#include "server/daemon/executor_pool.h"
#include "server/daemon/grant_book.h"
#include "server/daemon/placement.h"
#include "server/daemon/runtime_dir.h"

namespace tally::server {

class ClientListener {
 public:
  static constexpr std::chrono::seconds kHelloLimit{5};
  // Connections that have said nothing yet: of one user or grant, of all users that may have no session, of everybody.
  static constexpr size_t kMaxSilentPerUser = 64;
  static constexpr size_t kMaxSilentStrangers = 16;
  static constexpr size_t kMaxSilent = 512;

  // All must outlive the listener.
  ClientListener(EventLoop& loop, const DaemonConfig& config, ExecutorPool& pool, RuntimeDir& runtime_dir,
                 const GrantBook& grants);

  // Makes the socket, or takes `activated`, which the service manager has made there and keeps.
  Status Listen(const std::string& socket_path, std::optional<UniqueFd> activated);
  // Makes the socket of a grant. Whoever connects there is its tenant.
  Status OpenGrant(const Grant& grant, const std::string& socket_path);
  // No client is accepted there any more; all that wait for a session get this sentence. Removes the socket.
  void CloseGrant(const Grant& grant, const Status& why);
  // For sessions opened from now on: users, limits, the default class (reload.h).
  void Reconfigure(const DaemonConfig& config);
  // No client is accepted after this; those that wait for their session are answered by the pool. Removes the sockets,
  // but for one that is the service manager's.
  void StopListening();

  // Sessions refused since the start, by StatusCodeName.
  const std::map<std::string, uint64_t>& refusals() const { return refusals_; }
  // Those of the grants that there are, by tenant and StatusCodeName.
  const std::map<std::pair<std::string, std::string>, uint64_t>& refusals_of_grants() const {
    return refusals_of_grants_;
  }

 private:
  static constexpr uint64_t kCommonDoor = 0;

  // Where clients connect.
  struct Door {
    UniqueFd listening;
    std::string own_path;  // empty: the service manager's
  };
  // By user, and by grant; all that are refused together.
  using SilentUser = std::pair<uid_t, uint64_t>;
  static constexpr SilentUser kStrangers{UINT32_MAX, 0};
  struct Pending {
    UniqueFd socket;
    PeerCredentials peer;
    uint64_t grant_id;            // 0: it came by the common socket
    bool is_root_of_the_machine;  // as it was when it connected
    SilentUser silent_user;
    std::chrono::steady_clock::time_point since;
    bool has_said_hello = false;
    // Its user may have no session, and was told so. It stays for what it may be sending: with that unread, the end of
    // the connection would come before the sentence.
    bool is_refused = false;
  };

  Status Watch(uint64_t grant_id);
  void OnConnection(uint64_t grant_id);
  // False: there was none, or it could not be taken.
  bool Accept(uint64_t grant_id);
  void OnReadable(uint64_t pending_id);
  void OnHello(uint64_t pending_id, const shm::HelloRequest& hello);
  // In place of a hello: answers and hangs up.
  void OnViewRequest(uint64_t pending_id, const shm::TenantViewRequest& request);
  void ShowView(uint64_t pending_id, const shm::TenantViewRequest& request);
  Status CheckBuild(const shm::HelloRequest& hello) const;
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
  const GrantBook& grants_;
  std::map<uint64_t, Door> doors_;  // by grant, or kCommonDoor
  uint64_t next_pending_id_ = 1;
  std::map<uint64_t, Pending> pending_;              // by order of arrival
  std::map<SilentUser, std::set<uint64_t>> silent_;  // those of pending_ that have said nothing; no set is empty
  bool is_timer_set_ = false;
  bool is_asking_for_view_ = false;  // executors, for what a view is made of
  std::map<std::string, uint64_t> refusals_;
  std::map<std::pair<std::string, std::string>, uint64_t> refusals_of_grants_;
  std::chrono::steady_clock::time_point log_second_{};  // in which num_logged_ refusals were logged
  uint64_t num_logged_ = 0;
};

}  // namespace tally::server
