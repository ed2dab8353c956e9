// Executors outlive the pod of their tallyd: the end of a container is the end of all that is in its control group, so
// they are moved into one of the machine's. The next tallyd adopts them.
//
// Not tallyd's business: it has no privileges. This needs root, the host's process ids and its view of control groups
// (a privileged container). One thread.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "base/status.h"

namespace tally::device_plugin {

class ExecutorCgroup {
 public:
  // `directory` of a mounted cgroup2, below a directory that is there; made when it is needed.
  explicit ExecutorCgroup(std::string directory) : directory_(std::move(directory)) {}

  // Those that are new are moved. Not OK: one sentence; it is tried again with the next call.
  Status Keep(const std::vector<pid_t>& executors);

 private:
  const std::string directory_;
  std::set<pid_t> kept_;
};

}  // namespace tally::device_plugin
