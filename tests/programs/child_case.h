// For programs whose cases must each have a process of their own, because a fault ends what a process can do with the
// GPU: the program starts itself again (fork + exec, before it has touched CUDA) with `--case NAME` and reads what the
// child printed. Children run one after another.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "tests/programs/check.h"

namespace check {

struct ChildResult {
  std::string output;  // all of the child's stdout
  int exit_status;     // or 1000 + signal
};

inline ChildResult RunCase(const char* name) {
  int ends[2];
  if (pipe(ends) != 0) Fail("pipe: %s", strerror(errno));
  fflush(stdout);
  pid_t child = fork();
  if (child < 0) Fail("fork: %s", strerror(errno));
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execl("/proc/self/exe", "/proc/self/exe", "--case", name, static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  ChildResult result;
  char buffer[4096];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    result.output.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return result;
}

}  // namespace check
