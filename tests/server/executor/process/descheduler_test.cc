#include "server/executor/process/descheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "tests/server/executor/fakes/scripted_watch.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class DeschedulerTest : public testing::Test {
 protected:
  // What was done so far: s for descheduled, g for going on.
  std::string Done() {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  // The same, once there is so much, or after seconds.
  std::string DoneOnceThereAre(size_t count) {
    for (int i = 0; i < 5000 && Done().size() < count; ++i) std::this_thread::sleep_for(milliseconds(1));
    return Done();
  }
  // The same, while somebody waits for what stands still: what is said of it while the descheduler is still about the
  // last busy period has a reason.
  std::string DoneWhileSomethingStandsStillOnceThereAre(size_t count) {
    for (int i = 0; i < 5000 && Done().size() < count; ++i) {
      watch_.OnStandstill(0);
      std::this_thread::sleep_for(milliseconds(1));
    }
    return Done().substr(0, count);
  }
  void BusyPeriod(std::chrono::milliseconds length) {
    watch_.SetClosed(true);
    std::this_thread::sleep_for(length);
    watch_.SetClosed(false);
    std::this_thread::sleep_for(milliseconds(20));
  }
  Descheduler Make() {
    return Descheduler(watch_, 0, [this](bool is_descheduled) {
      const std::lock_guard lock(mutex_);
      if (num_groups_ > 0) done_ += is_descheduled ? 's' : 'g';
      const size_t num_left = num_stubborn_ > 0 ? num_stubborn_-- : 0;
      return is_descheduled ? num_groups_.load() : num_left;
    });
  }

  ScriptedWatch watch_;
  std::mutex mutex_;
  std::string done_;
  std::atomic<size_t> num_groups_{1};
  size_t num_stubborn_ = 0;  // so often letting go on does not help; guarded by mutex_
};

TEST_F(DeschedulerTest, ABusyPeriodThatLastsDeschedulesAndItsEndLetsGoOn) {
  Descheduler descheduler = Make();
  descheduler.Enable(true);
  watch_.SetClosed(true);
  EXPECT_EQ(DoneOnceThereAre(1), "s");
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(Done(), "s");
  watch_.SetClosed(false);
  EXPECT_EQ(DoneOnceThereAre(2), "sg");
  EXPECT_EQ(descheduler.num_deschedulings(), 1u);
}

TEST_F(DeschedulerTest, HighPriorityWorkOnAnotherDeviceDeschedulesNothing) {
  std::atomic<int> num_asked{0};
  Descheduler other(watch_, 1, [&](bool) { return ++num_asked, size_t{1}; });
  Descheduler descheduler = Make();
  other.Enable(true);
  descheduler.Enable(true);
  watch_.SetClosed(true);
  EXPECT_EQ(DoneOnceThereAre(1), "s");
  std::this_thread::sleep_for(milliseconds(50));
  watch_.OnStandstill(0);
  watch_.SetClosed(false);
  EXPECT_EQ(DoneOnceThereAre(2), "sg");
  EXPECT_EQ(DoneWhileSomethingStandsStillOnceThereAre(4), "sgsg");
  EXPECT_EQ(num_asked, 0);
}

TEST_F(DeschedulerTest, WhoRunsHighPriorityWorkOnAnotherDeviceIsDescheduledHere) {
  class OneOnTheOther final : public ScriptedWatch {
   public:
    bool IsOneOfThem(int device) override { return device == 1; }
  } watch;
  std::atomic<int> num_descheduled{0};
  Descheduler descheduler(watch, 0, [&](bool is_descheduled) {
    if (is_descheduled) ++num_descheduled;
    return is_descheduled ? size_t{1} : size_t{0};
  });
  descheduler.Enable(true);
  watch.SetClosed(true);
  for (int i = 0; i < 5000 && num_descheduled == 0; ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(num_descheduled, 1);
  watch.SetClosed(false);
}

TEST_F(DeschedulerTest, WhatDoesNotGoOnIsAskedAgain) {
  Descheduler descheduler = Make();
  descheduler.Enable(true);
  watch_.SetClosed(true);
  EXPECT_EQ(DoneOnceThereAre(1), "s");
  {
    const std::lock_guard lock(mutex_);
    num_stubborn_ = 2;
  }
  watch_.SetClosed(false);
  EXPECT_EQ(DoneOnceThereAre(4), "sggg");
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(Done(), "sggg");
}

TEST_F(DeschedulerTest, ShortBusyPeriodsThatFollowAtOnceAreOne) {
  Descheduler descheduler = Make();
  descheduler.Enable(true);
  for (int i = 0; i < 5000 && Done().empty(); ++i) {
    watch_.SetClosed(true);
    std::this_thread::sleep_for(microseconds(300));  // none of them would be worth it
    watch_.SetClosed(false);
    std::this_thread::sleep_for(microseconds(20));
  }
  EXPECT_EQ(DoneOnceThereAre(2), "sg");
  EXPECT_EQ(descheduler.num_deschedulings(), 1u);
}

TEST_F(DeschedulerTest, NothingHappensBeforeItIsEnabledOrWithoutHighPriorityWork) {
  Descheduler descheduler = Make();
  BusyPeriod(milliseconds(20));
  EXPECT_EQ(Done(), "");
  descheduler.Enable(true);
  std::this_thread::sleep_for(milliseconds(150));
  EXPECT_EQ(Done(), "");
}

TEST_F(DeschedulerTest, WhatStandsStillIsLetGoOnOnceMore) {
  Descheduler descheduler = Make();
  descheduler.Enable(true);
  watch_.SetClosed(true);
  EXPECT_EQ(DoneOnceThereAre(1), "s");
  watch_.OnStandstill(0);  // of course
  watch_.SetClosed(false);
  EXPECT_EQ(DoneOnceThereAre(2), "sg");
  std::this_thread::sleep_for(milliseconds(250));
  EXPECT_EQ(Done(), "sg");
  EXPECT_EQ(DoneWhileSomethingStandsStillOnceThereAre(4), "sgsg");
  // And not again, once all that was said has been heard.
  size_t num_done = 0;
  for (int i = 0; i < 40 && num_done != Done().size(); ++i) {
    num_done = Done().size();
    std::this_thread::sleep_for(milliseconds(250));
  }
  EXPECT_EQ(num_done, Done().size()) << "it never rests";
  EXPECT_EQ(descheduler.num_deschedulings(), 1u);
  EXPECT_GE(descheduler.num_standstills(), 1u);
}

TEST_F(DeschedulerTest, WhoRunsHighPriorityWorkItselfIsNotDescheduledAndGoesOnIfItIs) {
  Descheduler descheduler = Make();
  descheduler.Enable(true);
  watch_.SetClosed(true);
  EXPECT_EQ(DoneOnceThereAre(1), "s");
  watch_.is_one_of_them = true;
  EXPECT_EQ(DoneOnceThereAre(2), "sg");
  std::this_thread::sleep_for(milliseconds(150));
  EXPECT_EQ(Done(), "sg");
}

TEST_F(DeschedulerTest, DisabledInTheMiddleItGoesOn) {
  Descheduler descheduler = Make();
  descheduler.Enable(true);
  watch_.SetClosed(true);
  EXPECT_EQ(DoneOnceThereAre(1), "s");
  descheduler.Enable(false);
  EXPECT_EQ(DoneOnceThereAre(2), "sg");
}

TEST_F(DeschedulerTest, TheEndLetsGoOn) {
  {
    Descheduler descheduler = Make();
    descheduler.Enable(true);
    watch_.SetClosed(true);
    EXPECT_EQ(DoneOnceThereAre(1), "s");
  }
  EXPECT_EQ(Done(), "sg");
}

TEST_F(DeschedulerTest, WhatCannotBeDescheduledIsNotCounted) {
  num_groups_ = 0;
  Descheduler descheduler = Make();
  descheduler.Enable(true);
  BusyPeriod(milliseconds(50));
  EXPECT_EQ(descheduler.num_deschedulings(), 0u);
}

}  // namespace
}  // namespace tally::server
