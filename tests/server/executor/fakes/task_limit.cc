#include "tests/server/executor/fakes/task_limit.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <climits>

namespace tally::fakes {
namespace {

std::atomic<int> num_left{INT_MAX};
std::atomic<int> num_refused{0};

bool TakeOne() {
  int left = num_left.load();
  if (left == INT_MAX) return true;
  while (left > 0) {
    if (num_left.compare_exchange_weak(left, left - 1)) return true;
  }
  num_refused.fetch_add(1);
  return false;
}

}  // namespace

TaskLimit::TaskLimit(int left) {
  fakes::num_refused.store(0);
  fakes::num_left.store(left);
}
TaskLimit::~TaskLimit() { fakes::num_left.store(INT_MAX); }

int TaskLimit::num_refused() const { return fakes::num_refused.load(); }

}  // namespace tally::fakes

// The C++ library's and everybody's: found before the C library's, because it is the program's.
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*run)(void*), void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto next = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  return tally::fakes::TakeOne() ? next(thread, attributes, run, argument) : EAGAIN;
}
