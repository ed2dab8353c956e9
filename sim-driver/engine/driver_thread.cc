#include "sim-driver/engine/driver_thread.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

#include "base/thread.h"

namespace tally::sim_driver {

Result<std::thread> StartDriverThread(const std::string& name, std::function<void()> run) {
  sigset_t blocked, before;
  ::sigfillset(&blocked);
  for (const int raised : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS}) ::sigdelset(&blocked, raised);
  ::pthread_sigmask(SIG_SETMASK, &blocked, &before);  // the new thread inherits it
  auto thread = StartThread(name, std::move(run));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace tally::sim_driver
