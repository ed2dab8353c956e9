#include "base/thread_urgency.h"

#include <sys/resource.h>
#include <unistd.h>

namespace tally {

void SetThreadUrgent(bool is_urgent) {
  // On Linux a niceness belongs to a thread, not to its process.
  const auto thread = static_cast<id_t>(::gettid());
  thread_local const int ordinary = ::getpriority(PRIO_PROCESS, thread);
  ::setpriority(PRIO_PROCESS, thread, is_urgent ? ordinary - 5 : ordinary);
}

}  // namespace tally
