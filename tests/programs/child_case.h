// For programs whose cases must each have a process of their own, because a fault ends what a process can do with the
// GPU: the program starts itself again (fork + exec, before it has touched CUDA) with `--case NAME` and reads what the
// child printed. Children run one after another; one that does not end is killed, so that the others have their turn.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "tests/programs/check.h"

namespace check {

struct ChildResult {
  std::string output;  // all of the child's stdout
  int exit_status;     // or 1000 + signal, or kNeverEnded
};
constexpr int kNeverEnded = 2000;

// Whether there are bytes to read, or their end, before `deadline`.
inline bool AwaitReadable(int fd, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd watched = {fd, POLLIN, 0};
    const int ready = poll(&watched, 1, left > 0 ? static_cast<int>(left) : 0);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (left <= 0) return false;
  }
}

inline ChildResult RunCase(const char* name, int seconds = 15) {
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
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  bool has_ended = true;
  while ((has_ended = AwaitReadable(ends[0], deadline))) {
    const ssize_t count = read(ends[0], buffer, sizeof(buffer));
    if (count <= 0) break;
    result.output.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  // A child whose stdout is closed may still run.
  int status = 0;
  while (has_ended && waitpid(child, &status, WNOHANG) == 0) {
    has_ended = std::chrono::steady_clock::now() < deadline;
    usleep(1000);
  }
  if (has_ended) {
    result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  } else {
    printf("case '%s' had not ended after %d s\n", name, seconds);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    result.exit_status = kNeverEnded;
  }
  return result;
}

}  // namespace check
