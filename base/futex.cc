#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace tally {

bool FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, std::chrono::nanoseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec relative{.tv_sec = seconds.count(), .tv_nsec = (timeout - seconds).count()};
  // Not FUTEX_PRIVATE: the word is shared between processes.
  const long result = ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0);
  return !(result != 0 && errno == ETIMEDOUT);
}

void FutexWake(const std::atomic<uint32_t>& word, int count) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, count, nullptr, nullptr, 0);
}

}  // namespace tally
