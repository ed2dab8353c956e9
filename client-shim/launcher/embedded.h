// A private tallyd for one program: started before it, ended after it, nothing left behind.
//
// The daemon lives in a fresh directory of mode 0700 and in a process session of its own (Ctrl-C is for the program).
// It ends by itself if this process is killed, and takes its executors and the directory along. If it is killed, too,
// the next one removes what is left (stale_directories.h).
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace tally::launcher {

class EmbeddedDaemon {
 public:
  // Starts the tallyd beside tally-run and waits until clients can connect. What is wrong it says itself on stderr.
  static Result<EmbeddedDaemon> Start(const std::string& driver);
  EmbeddedDaemon(EmbeddedDaemon&& other) noexcept;
  EmbeddedDaemon& operator=(EmbeddedDaemon&&) = delete;
  // Calls Stop.
  ~EmbeddedDaemon();

  std::string socket() const;
  // "driver=sim (no NVIDIA GPU in /dev)"
  const std::string& readiness() const { return readiness_; }

  // Ends the daemon and its executors and removes the directory. Idempotent.
  void Stop();

 private:
  EmbeddedDaemon(std::string directory, pid_t pid) : directory_(std::move(directory)), pid_(pid) {}

  std::string directory_;
  pid_t pid_;  // 0 after Stop
  std::string readiness_;
};

}  // namespace tally::launcher
