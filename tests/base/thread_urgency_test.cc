#include "base/thread_urgency.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace tally {
namespace {

int NicenessOfThisThread() { return ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid())); }

TEST(ThreadUrgency, IsOfOneThreadAndEnds) {
  const int before = NicenessOfThisThread();
  std::thread([before] {
    SetThreadUrgent(true);
    const int urgent = NicenessOfThisThread();
    // Who may ask for it gets it; nobody else is worse off.
    EXPECT_TRUE(urgent == before || urgent == std::max(before - 5, -20)) << urgent;
    SetThreadUrgent(false);
    EXPECT_EQ(NicenessOfThisThread(), before);
  }).join();
  EXPECT_EQ(NicenessOfThisThread(), before);
}

}  // namespace
}  // namespace tally
