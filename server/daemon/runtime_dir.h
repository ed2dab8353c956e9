// The directory with a daemon's sockets and small files, locked by the one tallyd that uses it.
//
//   tally.sock, control.sock, executors.sock    sockets
//   tallyd.lock      held (flock) by the running tallyd; holds its pid
//   next-session     the next session id, so that ids are not used twice while the machine is up
//   executor-PID     one per living executor, empty: how a new tallyd knows whom to wait for
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
  // it belongs to another user, who could replace what is in it.
  static Result<std::unique_ptr<RuntimeDir>> Open(const std::string& path, bool others_may_connect);
  ~RuntimeDir();

  // Others need to reach the socket, not to list what else is there.
  void LetOthersConnect();

  const std::string& path() const { return path_; }
  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }

  // A number never given before while the machine is up (the directory is on a tmpfs).
  uint64_t TakeSessionId();

  void NoteExecutor(pid_t pid);
  void ForgetExecutor(pid_t pid);
  // Noted executors that still run: those of an earlier tallyd. Forgets the dead.
  std::vector<pid_t> LivingExecutors();

  // Removes every file named above except tally.sock, and the directory if `and_directory`.
  void RemoveFiles(bool and_directory);

 private:
  RuntimeDir(std::string path, UniqueFd lock, UniqueFd ids, uint64_t next_session_id);

  std::string path_;
  UniqueFd lock_;
  UniqueFd ids_;
  uint64_t next_session_id_;
};

}  // namespace tally::server
