#include "server/device-plugin/executor_cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/log.h"
#include "base/unique_fd.h"

namespace tally::device_plugin {

Status ExecutorCgroup::Keep(const std::vector<pid_t>& executors) {
  const std::set<pid_t> before = std::exchange(kept_, {});
  Status first_problem;
  for (const pid_t pid : executors) {
    if (before.contains(pid)) {
      kept_.insert(pid);
      continue;
    }
    if (::mkdir(directory_.c_str(), 0755) != 0 && errno != EEXIST) {
      return StatusFromErrno(errno,
                             "cannot make the control group '" + directory_ + "', so executors end with tallyd's pod");
    }
    const std::string procs = directory_ + "/cgroup.procs";
    // Without O_CREAT: what is no control group gets no file.
    const UniqueFd file(::open(procs.c_str(), O_WRONLY | O_CLOEXEC));
    const std::string text = std::to_string(pid);
    if (file.valid() && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) {
      kept_.insert(pid);
      LOG_INFO("executor {} outlives the pod of its tallyd: it is in '{}'", pid, directory_);
    } else if (errno != ESRCH && first_problem.ok()) {  // it may have ended meanwhile
      first_problem = StatusFromErrno(
          errno, "cannot move executors into the control group '" + directory_ + "', so they end with tallyd's pod");
    }
  }
  return first_problem;
}

}  // namespace tally::device_plugin
