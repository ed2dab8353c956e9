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
  // Work that comes `gap` after the last. Until when the GPU was to be held for it, from the gap's beginning.
  std::chrono::nanoseconds AwaitWork(std::chrono::nanoseconds gap, bool is_allowed = true, bool is_wanted = true) {
    hold_.WhileBusy(now_, true, is_allowed && is_wanted);
    now_ += microseconds(100);
    const TimePoint until = hold_.OnIdle(now_, is_allowed, is_wanted);
    const auto held = until - now_;
    now_ += gap;
    hold_.OnBusy(now_, figures_);
    return held;
  }
  FigureCounters figures_;
  TimePoint now_{std::chrono::hours(1)};
};

TEST_F(GapHoldTest, NothingIsHeldUnlessItMayBe) {
  hold_.WhileBusy(now_, true, false);
  EXPECT_EQ(HeldGpu::num_launched, 0u);
  EXPECT_EQ(hold_.OnIdle(now_, false, true), now_);
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
  for (int i = 0; i < 299; ++i) AwaitWork(microseconds(60));
  EXPECT_GE(AwaitWork(microseconds(60)), microseconds(60));
  // What is not held when work ends has been turned away from: to hold it then would be to switch for nothing.
  hold_.End();
  now_ += microseconds(100);
  EXPECT_EQ(hold_.OnIdle(now_, true, true), now_);
}

TEST_F(GapHoldTest, AGapIsCountedByWhatBecameOfIt) {
  AwaitWork(microseconds(60));  // nothing is known of gaps
  EXPECT_EQ(figures_["gaps_by_rule"], 1u);
  AwaitWork(microseconds(60), true, false);
  EXPECT_EQ(figures_["gaps_by_guard"], 1u);
  for (int i = 0; i < 300; ++i) AwaitWork(microseconds(60));
  EXPECT_GT(figures_["gaps_hit"], 200u);
  EXPECT_EQ(figures_["gaps_hit"] + figures_["gaps_by_rule"], 301u);
  EXPECT_EQ(figures_["gap_hold_ns"], figures_["gaps_hit"] * 60'000);
  EXPECT_EQ(figures_["gaps_late"], 0u);
  const uint64_t before = figures_["gap_hold_ns"];
  const std::chrono::nanoseconds held = AwaitWork(milliseconds(50));
  EXPECT_EQ(figures_["gaps_late"], 1u);
  EXPECT_EQ(figures_["gap_hold_ns"], before + static_cast<uint64_t>(held.count()));
  EXPECT_EQ(figures_["gaps_by_guard"], 1u);
}

TEST_F(GapHoldTest, AGapThatNobodyElseWouldGetIsNot) {
  for (const bool is_wanted : {false, true}) AwaitWork(microseconds(60), false, is_wanted);
  for (const control::Figure figure : control::kAllFigures) EXPECT_EQ(figures_[figure], 0u) << figure.row().name;
}

TEST_F(GapHoldTest, AGapIsCountedOnce) {
  AwaitWork(microseconds(60), true, false);
  hold_.OnBusy(now_, figures_);
  EXPECT_EQ(figures_["gaps_by_rule"], 1u);
}

// The guard is not what keeps the GPU from being held where it would not be.
TEST_F(GapHoldTest, GapsThatAreTooLongAreNotTheGuards) {
  EXPECT_FALSE(hold_.would_hold());
  for (int i = 0; i < 10; ++i) AwaitWork(milliseconds(50), true, false);
  EXPECT_FALSE(hold_.would_hold());
  EXPECT_EQ(figures_["gaps_by_rule"], 10u);
  EXPECT_EQ(figures_["gaps_by_guard"], 0u);
}

TEST(HoldChoiceTest, TriesBothWaysAndKeepsTheShorter) {
  HoldChoice choice;
  FigureCounters figures;
  EXPECT_FALSE(choice.holds());
  uint64_t num_held = 0;
  for (int i = 0; i < 20'000; ++i) {
    num_held += choice.holds();
    choice.OnRequest(choice.holds() ? microseconds(100) : microseconds(400), figures);
  }
  EXPECT_GT(num_held, 19'000u);
  EXPECT_LT(num_held, 20'000u);
  EXPECT_EQ(figures["requests_gaps_held"], num_held);
  EXPECT_EQ(figures["requests_gaps_open"], 20'000 - num_held);
  EXPECT_EQ(figures["requests_gaps_held_ns"], num_held * 100'000);
  EXPECT_EQ(figures["requests_gaps_open_ns"], (20'000 - num_held) * 400'000);
}

TEST(HoldChoiceTest, SaysWhatItPrefersWhateverIsTried) {
  HoldChoice choice;
  FigureCounters figures;
  for (const bool is_held_better : {true, false}) {
    for (int i = 0; i < 20'000; ++i) {
      choice.OnRequest(choice.holds() == is_held_better ? microseconds(100) : microseconds(400), figures);
      if (i > 10'000) {
        ASSERT_EQ(figures["prefers_holding"], is_held_better ? 1u : 0u) << i;
      }
    }
  }
}

// A program that sees to it that the better way changes without end.
TEST(HoldChoiceTest, NobodyFillsTheLogByIt) {
  HoldChoice choice;
  FigureCounters figures;
  SetLogLevel(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 500'000; ++i) {
    const bool is_held_better = i / 5000 % 2 == 0;
    choice.OnRequest(choice.holds() == is_held_better ? microseconds(100) : microseconds(400), figures);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), HoldChoice::kMostSaid) << said;
}

}  // namespace
}  // namespace tally::server
