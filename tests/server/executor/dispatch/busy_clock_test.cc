#include "server/executor/dispatch/busy_clock.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

class BusyClockTest : public testing::Test {
 protected:
  BusyClockTest() { clock_.Advance(std::chrono::seconds(1)); }
  std::shared_ptr<StreamWork> NewStream() { return std::make_shared<StreamWork>(busy_.On(0)); }
  void Put(const std::shared_ptr<StreamWork>& stream) { stream->clock().OnWork(stream); }
  void Wait(const std::shared_ptr<StreamWork>& stream) { stream->OnSeen(stream->num_put(), clock_.Now()); }
  void Pass(nanoseconds time) { clock_.Advance(time); }
  nanoseconds Total() {
    const BusyTimes times = busy_.On(0).Measure(is_high_priority_);
    return times[0] + times[1];
  }

  ManualClock clock_;
  BusyTime busy_{2, clock_};
  bool is_high_priority_ = false;
  const std::shared_ptr<StreamWork> stream_ = NewStream(), other_ = NewStream();
};

TEST_F(BusyClockTest, WhoHasNoWorkIsNotBusy) {
  Pass(std::chrono::hours(1));
  EXPECT_EQ(Total(), nanoseconds(0));
  EXPECT_FALSE(busy_.IsBusy());
}

TEST_F(BusyClockTest, FromTheFirstOperationToTheEndOfTheWait) {
  Put(stream_);
  Pass(microseconds(10));
  Put(stream_);
  Pass(microseconds(10));
  EXPECT_EQ(Total(), microseconds(20)) << "it runs still";
  EXPECT_TRUE(busy_.IsBusy());
  Wait(stream_);
  EXPECT_FALSE(busy_.IsBusy());
  Pass(microseconds(500));
  EXPECT_EQ(Total(), microseconds(20));
  Put(stream_);
  Pass(microseconds(7));
  Wait(stream_);
  Pass(microseconds(500));
  EXPECT_EQ(Total(), microseconds(27));
}

TEST_F(BusyClockTest, AnotherWaitForWhatIsCompleteAddsNothing) {
  Put(stream_);
  Pass(microseconds(10));
  Wait(stream_);
  Pass(microseconds(100));
  Wait(stream_);
  EXPECT_EQ(Total(), microseconds(10));
  Put(stream_);
  EXPECT_EQ(Total(), microseconds(10));
}

TEST_F(BusyClockTest, AWaitForSomeOfItEndsNothing) {
  Put(stream_);
  const uint64_t before = stream_->num_put();
  Pass(microseconds(10));
  Put(stream_);
  stream_->OnSeen(before, clock_.Now());
  Pass(microseconds(10));
  EXPECT_TRUE(busy_.IsBusy());
  EXPECT_EQ(Total(), microseconds(20));
  Wait(stream_);
  // One who waited for less is told later.
  Pass(microseconds(10));
  stream_->OnSeen(before, clock_.Now());
  EXPECT_EQ(Total(), microseconds(20));
}

TEST_F(BusyClockTest, StreamsSideBySideCountOnce) {
  Put(stream_);
  Pass(microseconds(10));
  Put(other_);
  Pass(microseconds(10));
  Wait(stream_);
  Pass(microseconds(10));
  EXPECT_EQ(Total(), microseconds(30)) << "the other one runs";
  Put(stream_);
  Wait(other_);
  Pass(microseconds(10));
  Wait(stream_);
  Pass(microseconds(10));
  EXPECT_EQ(Total(), microseconds(40));
}

TEST_F(BusyClockTest, TheLastOfAllEndsIt) {
  Put(stream_);
  Put(other_);
  Pass(microseconds(30));
  Wait(other_);
  Pass(microseconds(10));
  Wait(stream_);
  Pass(microseconds(10));
  Put(other_);
  EXPECT_EQ(Total(), microseconds(40));
}

TEST_F(BusyClockTest, DevicesCountApart) {
  const auto there = std::make_shared<StreamWork>(busy_.On(1));
  Put(there);
  Pass(microseconds(10));
  EXPECT_EQ(Total(), nanoseconds(0));
  EXPECT_EQ(busy_.On(1).Measure(false)[0], microseconds(10));
  EXPECT_TRUE(busy_.IsBusy());
}

// A counter that falls looks like a restart to Prometheus, which then counts all of it again.
TEST_F(BusyClockTest, ItNeverFallsThoughTheEndIsFoundToBeEarlier) {
  Put(stream_);
  Pass(microseconds(10));
  const TimePoint end = clock_.Now();
  Pass(microseconds(50));
  EXPECT_EQ(Total(), microseconds(60));
  stream_->OnSeen(stream_->num_put(), end);
  EXPECT_EQ(Total(), microseconds(60));
  Put(stream_);
  Pass(microseconds(40));
  EXPECT_EQ(Total(), microseconds(60)) << "50 counted before, and not once more";
  Pass(microseconds(20));
  EXPECT_EQ(Total(), microseconds(70));
}

TEST_F(BusyClockTest, WhatCameBeforeAChangeOfClassStaysWhereItWas) {
  Put(stream_);
  Pass(microseconds(10));
  busy_.On(0).Measure(false);  // the change
  Pass(microseconds(5));
  const BusyTimes times = busy_.On(0).Measure(true);
  EXPECT_EQ(times[0], microseconds(10));
  EXPECT_EQ(times[1], microseconds(5));
}

TEST_F(BusyClockTest, WhatALookFindsCompleteWasSoWhenItsEventWas) {
  Put(stream_);
  const uint64_t num_put = busy_.num_put();
  Pass(microseconds(10));
  busy_.OnEvent(num_put, clock_.Now());
  Pass(microseconds(100));
  EXPECT_EQ(busy_.WhenDone(clock_.Now()), clock_.Now() - microseconds(100));
  Put(stream_);
  EXPECT_EQ(busy_.WhenDone(clock_.Now()), clock_.Now()) << "more has come since";
}

struct Told final : BusyListener {
  void OnBusy(int on, TimePoint at) override {
    device = on;
    begun.push_back(at);
  }
  void OnSeen() override { ++num_seen; }
  int device = -1;
  int num_seen = 0;
  std::vector<TimePoint> begun;
};

TEST_F(BusyClockTest, WhoListensHearsOfEachStretchAndOfNothingWithin) {
  Told told;
  busy_.On(0).Tell(told);
  busy_.On(1).Tell(told);
  Put(stream_);
  Pass(microseconds(10));
  Put(stream_);
  Put(other_);
  EXPECT_EQ(told.begun, (std::vector{clock_.Now() - microseconds(10)}));
  EXPECT_EQ(told.device, 0);
  Wait(stream_);
  Wait(other_);
  Wait(other_);  // ends nothing
  EXPECT_EQ(told.num_seen, 2);
  Pass(microseconds(10));
  Put(other_);
  EXPECT_EQ(told.begun.size(), 2u);
  Put(std::make_shared<StreamWork>(busy_.On(1)));
  EXPECT_EQ(told.device, 1);
  EXPECT_EQ(told.begun.size(), 3u);
}

TEST(UsedDevicesTest, WorkIsWhatCountsAndEachDeviceIsToldOfOnce) {
  int num_told = 0;
  UsedDevices used([&] { ++num_told; });
  ManualClock clock;
  BusyTime busy(2, clock, &used), of_another_session(2, clock, &used);
  EXPECT_EQ(used.mask(), 0u);
  for (BusyTime* const time : {&busy, &of_another_session}) {
    const auto stream = std::make_shared<StreamWork>(time->On(1));
    for (int i = 0; i < 3; ++i) {
      time->On(1).OnWork(stream);
      stream->OnSeen(stream->num_put(), clock.Now());
    }
  }
  EXPECT_EQ(used.mask(), 0b10u);
  EXPECT_EQ(num_told, 1);
}

}  // namespace
}  // namespace tally::server
