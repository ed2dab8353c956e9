#include "server/executor/dispatch/high_priority_announcer.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "scheduler/tuning.h"
#include "tests/server/executor/dispatch/scripted_gpu.h"
#include "tests/server/executor/driver/held_gpu.h"
#include "tests/support/still_clock.h"
#include "tests/support/temporary_directory.h"

namespace tally::server {
namespace {

class HighPriorityAnnouncerTest : public testing::Test {
 protected:
  void SetUp() override {
    ScriptedGpu::Reset();
    auto page = ActivityPage::Open(directory_.path() + "/activity");
    ASSERT_TRUE(page) << page.error().ToString();
    page_ = std::move(*page);
    announcer_ = std::make_unique<HighPriorityAnnouncer>(table_, *devices_, *page_, clock_);
  }
  void TearDown() override {
    ScriptedGpu::Go();
    announcer_.reset();
  }
  static CUstream Stream(uintptr_t number) { return reinterpret_cast<CUstream>(number); }
  void Launch(CUstream stream, bool wants_hold = false, bool begins_request = false) {
    announcer_->BeforeDispatch(0, {begins_request, wants_hold, figures_});
    announcer_->AfterDispatch(0, stream);
  }
  // Somebody has looked since.
  static void AwaitLooks() {
    const uint64_t before = ScriptedGpu::NumQueries();
    while (ScriptedGpu::NumQueries() < before + 5) Pause();
  }
  void AwaitIdle() {
    while (page_->IsBusy(0)) Pause();
  }
  static void Pause() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

  const TemporaryDirectory directory_;
  const SteadyClock clock_;
  const DriverTable table_ = ScriptedGpu::Table();
  const std::unique_ptr<Devices> devices_ = *Devices::Create(table_);
  std::unique_ptr<ActivityPage> page_;
  std::unique_ptr<HighPriorityAnnouncer> announcer_;
  FigureCounters figures_;
};

TEST_F(HighPriorityAnnouncerTest, IsIdleOnlyOnceEveryStreamIs) {
  ScriptedGpu::Stop();
  Launch(Stream(1));
  Launch(Stream(2));
  AwaitLooks();
  EXPECT_TRUE(page_->IsBusy(0));
  EXPECT_FALSE(page_->IsBusy(1));
  ScriptedGpu::EndOne(Stream(1));
  AwaitLooks();
  EXPECT_TRUE(page_->IsBusy(0));
  ScriptedGpu::EndOne(Stream(2));
  AwaitIdle();
}

TEST_F(HighPriorityAnnouncerTest, IsBusyUntilTheLastOfAStreamHasEnded) {
  ScriptedGpu::Stop();
  Launch(Stream(1));
  AwaitLooks();
  Launch(Stream(1));  // while the end of the first is looked for
  Launch(Stream(1));
  for (int i = 0; i < 2; ++i) {
    ScriptedGpu::EndOne(Stream(1));
    AwaitLooks();
    EXPECT_TRUE(page_->IsBusy(0)) << i;
  }
  ScriptedGpu::EndOne(Stream(1));
  AwaitIdle();
}

TEST_F(HighPriorityAnnouncerTest, StreamsThatComeAndGoLeaveNothingBehind) {
  const uint64_t before = ScriptedGpu::NumEvents();
  for (uintptr_t i = 1; i <= 100; ++i) {
    Launch(Stream(i));
    AwaitIdle();
  }
  EXPECT_LE(ScriptedGpu::NumEvents() - before, 2u);
}

TEST_F(HighPriorityAnnouncerTest, NothingRunsInALostContext) {
  ScriptedGpu::Stop();
  Launch(Stream(1));
  AwaitLooks();
  ScriptedGpu::Fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  AwaitIdle();
  EXPECT_EQ(devices_->completions(0).TakeError(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(HighPriorityAnnouncerTest, WhatCannotBeMarkedDoesNotKeepTheDeviceBusy) {
  ScriptedGpu::Fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  Launch(Stream(1));
  AwaitIdle();
}

class HoldingAnnouncerTest : public HighPriorityAnnouncerTest {
 protected:
  void SetUp() override {
    HighPriorityAnnouncerTest::SetUp();
    HeldGpu::Fill(held_table_);
    announcer_ = std::make_unique<HighPriorityAnnouncer>(held_table_, *devices_, *page_, still_clock_, true);
    ScriptedGpu::Stop();
  }
  // Whether the GPU is held while something runs that was launched so.
  bool IsHeldFor(bool wants_hold) {
    Launch(Stream(1), wants_hold);
    AwaitLooks();
    const bool is_held = !HeldGpu::IsReleased();
    ScriptedGpu::EndOne(Stream(1));
    AwaitIdle();
    AwaitChoice();
    return is_held;
  }
  // What becomes of a gap is known: until then the device is locked, as for this.
  void AwaitChoice() {
    const scheduler::Tuning tuning;
    announcer_->SetHoldOffBounds(tuning.min_hold_off, tuning.max_hold_off);
  }
  StillClock still_clock_;  // what is busy for long is not held
  DriverTable held_table_ = ScriptedGpu::Table();
};

TEST_F(HoldingAnnouncerTest, OnlyWhereThereIsWorkToHoldItAgainst) {
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(IsHeldFor(true));
  announcer_->AllowHolding(1);
  EXPECT_TRUE(IsHeldFor(true));
  announcer_->AllowHolding(0b10);  // on another GPU
  EXPECT_FALSE(IsHeldFor(true));
  EXPECT_FALSE(announcer_->WouldHoldAnywhere()) << "of whose gaps nothing is known";
  announcer_->AllowHolding(0b11);
  EXPECT_TRUE(announcer_->WouldHoldAnywhere());
  announcer_->AllowHolding(0);
  EXPECT_FALSE(announcer_->WouldHoldAnywhere());
}

// Requests would be counted, and gaps, as if it were.
TEST_F(HoldingAnnouncerTest, WhereTheDriverRefusesNothingCountsAsHeld) {
  HeldGpu::result = CUDA_ERROR_INVALID_PTX;
  announcer_->AllowHolding(0b1);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(IsHeldFor(true));
  EXPECT_FALSE(announcer_->WouldHoldAnywhere());
  for (const control::Figure figure : control::kAllFigures) EXPECT_EQ(figures_[figure], 0u) << figure.row().name;
}

// Gaps that nobody would hold say nothing about holding: a service whose requests come closer together later would be
// thought to gain nothing for as long as they count.
TEST_F(HoldingAnnouncerTest, OnlyGapsThatWouldBeHeldAreAQuestion) {
  announcer_->AllowHolding(1);
  EXPECT_FALSE(announcer_->WouldHoldAnywhere()) << "nothing is known of gaps";
  const auto work_after = [&](std::chrono::nanoseconds gap) {
    still_clock_.Advance(gap);
    IsHeldFor(false);
  };
  for (int i = 0; i < 20; ++i) work_after(std::chrono::milliseconds(10));
  EXPECT_FALSE(announcer_->WouldHoldAnywhere());
  for (int i = 0; i < 20; ++i) work_after(std::chrono::microseconds(50));
  EXPECT_TRUE(announcer_->WouldHoldAnywhere());
  for (int i = 0; i < 200; ++i) work_after(std::chrono::milliseconds(10));
  EXPECT_FALSE(announcer_->WouldHoldAnywhere());
}

// Requests that queue follow one another before a watcher that looks now and then can see a gap: they would gain most.
TEST_F(HoldingAnnouncerTest, ARequestBehindAnotherIsAGapThatWouldBeHeld) {
  announcer_->AllowHolding(1);
  for (const bool begins_request : {false, true}) {
    for (int i = 0; i < 5; ++i) Launch(Stream(1), false, begins_request);
    EXPECT_EQ(announcer_->WouldHoldAnywhere(), begins_request);
    EXPECT_EQ(figures_["gaps_by_rule"] + figures_["gaps_by_guard"], begins_request ? 5u : 0u);
  }
  EXPECT_EQ(figures_["gaps_by_guard"], 4u) << "of the first one nothing was known";
  Launch(Stream(1), true, true);
  EXPECT_EQ(figures_["gaps_hit"], 1u);
  ScriptedGpu::EndOne(Stream(1));
}

TEST_F(HoldingAnnouncerTest, AsTheLastLaunchWantsIt) {
  announcer_->AllowHolding(1);
  EXPECT_FALSE(IsHeldFor(false));
  EXPECT_TRUE(IsHeldFor(true));
  EXPECT_FALSE(IsHeldFor(false));
  Launch(Stream(1), false);
  Launch(Stream(1), true);
  AwaitLooks();
  EXPECT_FALSE(HeldGpu::IsReleased());
  for (int i = 0; i < 2; ++i) ScriptedGpu::EndOne(Stream(1));
  AwaitIdle();
}

TEST_F(HoldingAnnouncerTest, AGapIsCountedOfTheSessionThatEndsIt) {
  IsHeldFor(false);
  announcer_->AllowHolding(1);
  IsHeldFor(false);
  EXPECT_EQ(figures_["gaps_by_guard"], 0u) << "nobody else would have got the first one, and the second lasts";
  FigureCounters next;
  announcer_->BeforeDispatch(0, {false, true, next});
  announcer_->AfterDispatch(0, Stream(1));
  EXPECT_EQ(next["gaps_by_guard"], 1u);
  EXPECT_EQ(figures_["gaps_by_guard"], 0u);
}

TEST_F(HoldingAnnouncerTest, WhatIsHeldEndsWithItOnTheThreadThatHolds) {
  announcer_->AllowHolding(1);
  Launch(Stream(1), true);
  AwaitLooks();
  ScriptedGpu::EndOne(Stream(1));
  announcer_.reset();
  EXPECT_TRUE(HeldGpu::was_released_at_end);
  EXPECT_NE(HeldGpu::ended_by, std::this_thread::get_id());
}

TEST_F(HoldingAnnouncerTest, IsReleasedWhenNothingComes) {
  announcer_->AllowHolding(1);
  EXPECT_TRUE(IsHeldFor(true));
  for (; !HeldGpu::IsReleased(); Pause()) still_clock_.Advance(std::chrono::milliseconds(1));
}

}  // namespace
}  // namespace tally::server
