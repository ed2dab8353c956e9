#include "server/ctl/doctor/switch_test.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/installed_files.h"
#include "base/unique_fd.h"
#include "proto/control/switch_figures.h"

namespace tally::cli {
namespace {

using std::chrono::steady_clock;

// What it prints until it ends or the time is over; then it is ended.
std::string OutputUntil(int fd, steady_clock::time_point until) {
  std::string text;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - steady_clock::now());
    pollfd ready{fd, POLLIN, 0};
    char letters[4096];
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) return text;
    const ssize_t size = ::read(fd, letters, sizeof(letters));
    if (size <= 0) return text;
    text.append(letters, static_cast<size_t>(size));
  }
}

}  // namespace

SwitchFact RunSwitchTest(std::chrono::seconds limit) {
  SwitchFact fact;
  const auto until = steady_clock::now() + limit;
  std::string program = ProgramDirectory() + "/tally-switch-test", json = "--json";
  int ends[2];
  if (::access(program.c_str(), X_OK) != 0 || ::pipe2(ends, O_CLOEXEC) != 0) {
    fact.problem = fmt::format("not known: '{}' cannot be run", program);
    return fact;
  }
  const UniqueFd output(ends[0]);
  UniqueFd input(ends[1]);
  char* arguments[] = {program.data(), json.data(), nullptr};
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, input.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, program.c_str(), &files, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&files);
  input.Reset();
  const std::string text = error == 0 ? OutputUntil(output.get(), until) : "";
  if (error == 0) {
    const bool is_late = steady_clock::now() >= until;
    if (is_late) ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    if (is_late) fact.problem = fmt::format("not known: tally-switch-test was not done within {} s", limit.count());
  }
  if (const auto figures = control::ParseSwitchFigures(text)) {
    fact.acts = figures->acts;
    fact.p99_us = figures->p99_us;
    fact.own_p99_us = figures->own_p99_us;
  } else if (fact.problem.empty()) {
    fact.problem = "not known: tally-switch-test could not measure here (it needs a GPU with nothing else to do)";
  }
  return fact;
}

}  // namespace tally::cli
