#include "client-shim/launcher/supervise.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace tally::launcher {
namespace {

sigset_t g_mask_before;  // of HoldSignals, for the program

constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGALRM};

sigset_t HeldSignals() {
  sigset_t held;
  ::sigemptyset(&held);
  for (const int number : kPassedOn) ::sigaddset(&held, number);
  ::sigaddset(&held, SIGCHLD);
  return held;
}

}  // namespace

void HoldSignals() {
  const sigset_t held = HeldSignals();
  ::sigprocmask(SIG_BLOCK, &held, &g_mask_before);
}

int Become(const Program& program, const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv(program.path.c_str(), arguments.data());
  const int error = errno;
  if (error == ENOEXEC) {
    fmt::print(stderr, "tally-run: cannot run '{}': neither a program nor a script with a #! line\n", program.path);
  } else {
    fmt::print(stderr, "tally-run: cannot run '{}': {}\n", program.path, std::strerror(error));
  }
  return error == ENOENT ? 127 : 126;
}

int Supervise(const Program& program, const std::vector<std::string>& command) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    fmt::print(stderr, "tally-run: cannot start '{}': {}\n", program.path, std::strerror(errno));
    return W_EXITCODE(126, 0);
  }
  if (child == 0) {
    // Without us there is no daemon, so there is no point in going on.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(126);
    ::sigprocmask(SIG_SETMASK, &g_mask_before, nullptr);
    ::_exit(Become(program, command));
  }
  const sigset_t held = HeldSignals();
  for (;;) {
    siginfo_t signal{};
    const int number = ::sigwaitinfo(&held, &signal);
    if (number < 0) continue;
    if (number != SIGCHLD) {
      // From a terminal (si_code SI_KERNEL) the program has it already: it is in our process group.
      if (signal.si_code <= 0) ::kill(child, number);
      continue;
    }
    int wait_status = 0;
    if (::waitpid(child, &wait_status, WNOHANG) == child) return wait_status;
  }
}

void EndAs(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    const rlimit no_core{0, 0};  // the program's own core dump is the one of interest
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::signal(number, SIG_DFL);
    sigset_t only;
    ::sigemptyset(&only);
    ::sigaddset(&only, number);
    ::raise(number);
    ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
    std::_Exit(128 + number);  // a signal that cannot kill us
  }
  std::exit(WEXITSTATUS(wait_status));
}

}  // namespace tally::launcher
