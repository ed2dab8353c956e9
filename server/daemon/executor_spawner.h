// Starts executor processes that outlive their tallyd.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"
#include "server/daemon/config.h"
#include "server/daemon/domain.h"

namespace tally::server {

class ExecutorSpawner {
 public:
  // `driver` is what auto came to. kNotFound if no executor program is there.
  static Result<ExecutorSpawner> Create(const DaemonConfig& config, DriverChoice driver, std::string executor_socket);

  // A new process in a session of its own (a terminal's Ctrl-C does not reach it) with only descriptors 0, 1 and 2.
  // `is_beside_service`: a high-priority domain is there.
  Result<pid_t> Spawn(const Domain& domain, bool is_beside_service) const;
  DriverChoice driver() const { return driver_; }
  // Of executors started from now on.
  void Reconfigure(const DaemonConfig& config) { config_ = config; }
  void SetTurnaroundThreshold(std::chrono::nanoseconds threshold) { config_.turnaround_threshold = threshold; }

 private:
  ExecutorSpawner(const DaemonConfig& config, DriverChoice driver, std::string executor_socket, std::string program)
      : config_(config), driver_(driver), executor_socket_(std::move(executor_socket)), program_(std::move(program)) {}

  DaemonConfig config_;
  DriverChoice driver_;
  std::string executor_socket_;
  std::string program_;
};

// What `auto` comes to here, and why in a few words.
struct ResolvedDriver {
  DriverChoice driver;
  std::string reason;
};
// kAuto is kCuda if there is a GPU's device file, else kSim. A GPU that then turns out to be unusable is an error for
// the client, not a silent change to software that is a thousand times slower.
ResolvedDriver ResolveDriver(DriverChoice wanted, const std::string& dev_directory = "/dev");

}  // namespace tally::server
