#include "server/executor/dispatch/activity_page.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/support/thread_state.h"

namespace tally::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

class ActivityPageTest : public testing::Test {
 protected:
  std::unique_ptr<ActivityPage> Open() {
    auto page = ActivityPage::Open(directory_ + "/activity");
    EXPECT_TRUE(page) << page.error().ToString();
    return std::move(*page);
  }

  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
};

TEST_F(ActivityPageTest, BusyIsSeenByOthersPerDevice) {
  auto high = Open();
  auto best_effort = Open();
  ASSERT_TRUE(high->ClaimSlot().ok());
  high->SetBusy(3);
  high->SetBusy(3);
  EXPECT_TRUE(best_effort->IsBusy(3));
  EXPECT_FALSE(best_effort->IsBusy(2));
  const TimePoint opens_at(std::chrono::nanoseconds(12345));
  high->SetIdle(3, opens_at);
  EXPECT_FALSE(best_effort->IsBusy(3));
  EXPECT_EQ(best_effort->OpensAt(3), opens_at);
}

TEST_F(ActivityPageTest, HighPriorityWorkIsPresentOnTheDevicesThatItHasEverUsed) {
  auto first = Open();
  auto second = Open();
  auto best_effort = Open();
  ASSERT_TRUE(first->ClaimSlot().ok());
  ASSERT_TRUE(second->ClaimSlot().ok());
  EXPECT_FALSE(best_effort->HighPriorityPresent(1));
  EXPECT_FALSE(first->HasWorkedOn(1));
  first->SetBusy(1);
  second->SetBusy(1);
  second->SetBusy(63);
  EXPECT_TRUE(best_effort->HighPriorityPresent(1));
  EXPECT_TRUE(best_effort->HighPriorityPresent(63));
  EXPECT_FALSE(best_effort->HighPriorityPresent(0));
  EXPECT_TRUE(first->HasWorkedOn(1));
  EXPECT_FALSE(first->HasWorkedOn(63)) << "somebody else has";
  EXPECT_FALSE(best_effort->HasWorkedOn(1));
  first->SetIdle(1, TimePoint{});
  first->SetBusy(1);
  first->SetIdle(1, TimePoint{});
  EXPECT_TRUE(best_effort->HighPriorityPresent(1)) << "it may come back at any time";
  first.reset();
  EXPECT_TRUE(best_effort->HighPriorityPresent(1)) << "there are two";
  second.reset();
  EXPECT_FALSE(best_effort->HighPriorityPresent(1));
  EXPECT_FALSE(best_effort->HighPriorityPresent(63));
}

TEST_F(ActivityPageTest, TwoHighPriorityExecutorsCountTwice) {
  auto first = Open();
  auto second = Open();
  ASSERT_TRUE(first->ClaimSlot().ok());
  ASSERT_TRUE(second->ClaimSlot().ok());
  first->SetBusy(0);
  second->SetBusy(0);
  first->SetIdle(0, TimePoint{});
  EXPECT_TRUE(first->IsBusy(0));
  second->SetIdle(0, TimePoint{});
  EXPECT_FALSE(first->IsBusy(0));
}

TEST_F(ActivityPageTest, WaitersWakeWhenTheLastWorkEnds) {
  auto high = Open();
  auto best_effort = Open();
  ASSERT_TRUE(high->ClaimSlot().ok());
  high->SetBusy(0);
  std::thread waiter([&] { best_effort->WaitWhileBusy(0, hours(1)); });
  high->SetIdle(0, TimePoint{});
  waiter.join();
}

// They look again by themselves, for executors that have died, so what counts is how soon they wake as a rule.
TEST_F(ActivityPageTest, WaitersAreWokenByTheLastOfSeveral) {
  auto one = Open();
  auto other = Open();
  auto best_effort = Open();
  ASSERT_TRUE(one->ClaimSlot().ok());
  ASSERT_TRUE(other->ClaimSlot().ok());
  std::vector<milliseconds> waits;
  for (int round = 0; round < 9; ++round) {
    one->SetBusy(0);
    other->SetBusy(0);
    std::atomic<pid_t> thread = 0;
    std::thread waiter([&] {
      thread = ::gettid();
      best_effort->WaitWhileBusy(0, hours(1));
    });
    while (!IsAsleep(thread)) std::this_thread::yield();
    one->SetIdle(0, TimePoint{});
    std::this_thread::sleep_for(milliseconds(5));  // it sleeps again, if that woke it
    const auto begin = std::chrono::steady_clock::now();
    other->SetIdle(0, TimePoint{});
    waiter.join();
    waits.push_back(std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin));
  }
  std::ranges::nth_element(waits, waits.begin() + 4);
  EXPECT_LT(waits[4], milliseconds(50));
}

TEST_F(ActivityPageTest, WhoWaitsForWorkWakesWhenItComes) {
  auto high = Open();
  auto best_effort = Open();
  ASSERT_TRUE(high->ClaimSlot().ok());
  std::thread waiter([&] {
    while (!best_effort->IsBusy(2)) best_effort->WaitWhileIdle(2, hours(1));
  });
  high->SetBusy(2);
  waiter.join();
  EXPECT_EQ(best_effort->NumTimesBusy(2), 1u);
  best_effort->WaitWhileIdle(2, hours(1));  // busy already: returns at once
  high->SetIdle(2, TimePoint{});
  best_effort->WaitWhileIdle(2, milliseconds(5));
  high->SetBusy(2);
  EXPECT_EQ(best_effort->NumTimesBusy(2), 2u);
}

TEST_F(ActivityPageTest, WaitingIsBounded) {
  auto high = Open();
  ASSERT_TRUE(high->ClaimSlot().ok());
  high->SetBusy(0);
  Open()->WaitWhileBusy(0, milliseconds(5));
  EXPECT_TRUE(high->IsBusy(0));
}

TEST_F(ActivityPageTest, AnExecutorThatDiesBusyIsForgotten) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto high = ActivityPage::Open(directory_ + "/activity");
    if (!high || !(*high)->ClaimSlot().ok()) ::_exit(1);
    (*high)->SetBusy(0);
    ::_exit(0);  // no destructor, as after kill -9
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  auto best_effort = Open();
  ASSERT_TRUE(best_effort->IsBusy(0));
  best_effort->WaitWhileBusy(0, hours(1));
  EXPECT_FALSE(best_effort->IsBusy(0));
  EXPECT_FALSE(best_effort->HighPriorityPresent(0));
}

TEST_F(ActivityPageTest, AForeignFileIsRefused) {
  std::ofstream(directory_ + "/activity") << "this is no activity page";
  const auto page = ActivityPage::Open(directory_ + "/activity");
  ASSERT_FALSE(page);
  EXPECT_EQ(page.error().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tally::server
