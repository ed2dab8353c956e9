// The process's pthread_sigmask and sigprocmask: libcuda, which is loaded later, finds these before the C library's,
// because the executor exports them (server/executor/CMakeLists.txt).
//
// A driver's threads block signals, which are the program's business. What an access of such a thread raises must all
// the same reach our handler (session/truncation_guard.h): where it is blocked, the kernel ends the process instead.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace {

using Mask = int (*)(int, const sigset_t*, sigset_t*);

int Forward(const char* name, int how, const sigset_t* set, sigset_t* before) {
  const auto next = reinterpret_cast<Mask>(::dlsym(RTLD_NEXT, name));
  if (set == nullptr || how == SIG_UNBLOCK) return next(how, set, before);
  sigset_t blocked = *set;
  for (const int raised : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS}) ::sigdelset(&blocked, raised);
  return next(how, &blocked, before);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int pthread_sigmask(int how, const sigset_t* set,
                                                                      sigset_t* before) noexcept {
  return Forward("pthread_sigmask", how, set, before);
}
extern "C" __attribute__((visibility("default"))) int sigprocmask(int how, const sigset_t* set,
                                                                  sigset_t* before) noexcept {
  return Forward("sigprocmask", how, set, before);
}
