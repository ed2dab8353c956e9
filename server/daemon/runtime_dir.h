// The directory with a daemon's sockets and small files, locked by the one tallyd that uses it.
//
//   clients/tally.sock                 where clients connect; a directory of its own that containers may have
//   tally.sock                         a link to it, for those outside
//   grants/TENANT/tally.sock           where the tenant of a grant connects; only containers get to these
//   grants.json                        the grants, for the next tallyd (grant_book.h)
//   control.sock, executors.sock       sockets of nobody else's
//   view.sock                          for everybody's own sessions (rpc/view_server.h)
//   activity         the executors' page (server/executor/dispatch/activity_page.h)
//   tallyd.lock      held (flock) by the running tallyd; holds its pid
//   ledger           what tenants have done (ledger_file.h)
//   next-session     the next session id, so that ids are not used twice while the machine is up
//   executor-PID     one per living executor, empty: how a new tallyd knows whom to wait for
//   door-PID         where other executors ask that one for shared objects (proto/control/sharing_door_abi.h)
//
// Owned by the daemon's thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tally::server {

class RuntimeDir {
 public:
  // Creates the directory if needed and locks it. kAlreadyExists names the tallyd that holds it; kPermissionDenied if
  // another user could replace it or what is in it (base/private_path.h).
  static Result<std::unique_ptr<RuntimeDir>> Open(const std::string& path, bool others_may_connect);
  ~RuntimeDir();

  // Others need to reach the socket, not to list what else is there.
  void LetOthersConnect();
  // Makes the link to the clients' socket of this name (control::ClientSocketIn).
  void LinkClientSocket(const std::string& name);

  // Makes the directory of a grant if it is not there; the path of its socket. What is there and is no directory of
  // ours is refused. Nobody of the machine but us and root gets through `grants`: a container's mount begins below it.
  Result<std::string> MakeGrantDirectory(const std::string& tenant);
  void RemoveGrantDirectory(const std::string& tenant);
  // Those that are there.
  std::vector<std::string> GrantDirectories() const;

  const std::string& path() const { return path_; }
  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }

  // A number never given before while the machine is up (the directory is on a tmpfs).
  uint64_t TakeSessionId();

  void NoteExecutor(pid_t pid);
  void ForgetExecutor(pid_t pid);
  // Noted executors that still run: those of an earlier tallyd. Forgets the dead.
  std::vector<pid_t> LivingExecutors();

  // Removes the sockets named above and a link that leads nowhere; with `and_directory` everything named above, and
  // the directory.
  void RemoveFiles(bool and_directory);

 private:
  RuntimeDir(std::string path, UniqueFd lock, UniqueFd ids, uint64_t next_session_id);

  std::string path_;
  UniqueFd lock_;
  UniqueFd ids_;
  uint64_t next_session_id_;
  std::string link_;  // empty: none was made
};

}  // namespace tally::server
