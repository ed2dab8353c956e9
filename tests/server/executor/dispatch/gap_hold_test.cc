#include "server/executor/dispatch/gap_hold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/log.h"
#include "tests/server/executor/driver/held_gpu.h"

namespace tally::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class GapHoldTest : public testing::Test {
 protected:
  void SetUp() override { hold_.Open(); }
  const DriverTable table_ = HeldGpu::Table();
  GapHold hold_{table_};
  TimePoint now_{std::chrono::hours(1)};
};

TEST_F(GapHoldTest, NothingIsHeldUnlessItMayBe) {
  hold_.WhileBusy(now_, true, false);
  EXPECT_EQ(HeldGpu::num_launched, 0u);
  EXPECT_EQ(hold_.OnIdle(now_, false), now_);
  hold_.WhileBusy(now_, true, true);
  EXPECT_EQ(HeldGpu::num_launched, GapHold::kQueue.num_kernels);
  hold_.WhileBusy(now_, true, false);
  EXPECT_TRUE(HeldGpu::IsReleased());
}

// A stream that waits for what never comes is busy for ever.
TEST_F(GapHoldTest, WithoutNewWorkItIsHeldForAMomentOnly) {
  hold_.WhileBusy(now_, true, true);
  hold_.WhileBusy(now_ + GapHold::kLongestWithoutWork / 2, false, true);
  EXPECT_FALSE(HeldGpu::IsReleased());
  hold_.WhileBusy(now_ + GapHold::kLongestWithoutWork, false, true);
  EXPECT_TRUE(HeldGpu::IsReleased());
}

TEST_F(GapHoldTest, ShortGapsAreHeldOnceTheyAreKnown) {
  for (int i = 0; i < 300; ++i) {
    hold_.WhileBusy(now_, true, true);
    now_ += microseconds(100);
    const TimePoint until = hold_.OnIdle(now_, true);
    if (i == 299) {
      EXPECT_GE(until, now_ + microseconds(60));
    }
    now_ += microseconds(60);
    hold_.OnBusy(now_);
  }
  // What is not held when work ends has been turned away from: to hold it then would be to switch for nothing.
  hold_.End();
  now_ += microseconds(100);
  EXPECT_EQ(hold_.OnIdle(now_, true), now_);
}

TEST(HoldChoiceTest, TriesBothWaysAndKeepsTheShorter) {
  HoldChoice choice;
  EXPECT_FALSE(choice.holds());
  int num_held = 0;
  for (int i = 0; i < 20'000; ++i) {
    num_held += choice.holds();
    choice.OnRequest(choice.holds() ? microseconds(100) : microseconds(400));
  }
  EXPECT_GT(num_held, 19'000);
  EXPECT_LT(num_held, 20'000);
}

// A program that sees to it that the better way changes without end.
TEST(HoldChoiceTest, NobodyFillsTheLogByIt) {
  HoldChoice choice;
  SetLogLevel(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 500'000; ++i) {
    const bool is_held_better = i / 5000 % 2 == 0;
    choice.OnRequest(choice.holds() == is_held_better ? microseconds(100) : microseconds(400));
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), HoldChoice::kMostSaid) << said;
}

}  // namespace
}  // namespace tally::server
