#include "server/executor/process/departed_work.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

using std::chrono::seconds;

class DepartedWorkTest : public testing::Test {
 protected:
  // Of sessions with work on the first of two devices.
  std::optional<uint64_t> LookAfter(seconds passed, const std::vector<uint64_t>& draining, bool is_kept_away = false) {
    return LookAfter(passed, draining, {passed, seconds(0)}, {is_kept_away, false});
  }
  // `busy`: for how long it was busy meanwhile.
  std::optional<uint64_t> LookAfter(seconds passed, const std::vector<uint64_t>& draining,
                                    const std::vector<seconds>& busy, const std::vector<bool>& is_taken) {
    clock_.Advance(passed);
    for (size_t device = 0; device < busy.size(); ++device) busy_[device] += busy[device];
    std::vector<DepartedWork::Draining> sessions;
    for (const uint64_t id : draining) sessions.push_back({id, busy_});
    return work_.Look(sessions, is_taken, clock_.Now());
  }

  ManualClock clock_;
  DepartedWork work_{seconds(10)};
  std::vector<std::chrono::nanoseconds> busy_ = std::vector<std::chrono::nanoseconds>(2);
};

TEST_F(DepartedWorkTest, WhatEndsInTimeIsNoMatter) {
  EXPECT_EQ(LookAfter(seconds(1), {7}), std::nullopt);
  EXPECT_EQ(LookAfter(seconds(9), {7}), std::nullopt);
  EXPECT_EQ(LookAfter(seconds(1), {}), std::nullopt);
}

TEST_F(DepartedWorkTest, WhatHasHadTheLimitIsNamed) {
  EXPECT_EQ(LookAfter(seconds(1), {7}), std::nullopt);
  EXPECT_EQ(LookAfter(seconds(9), {5, 7}), std::nullopt);
  EXPECT_EQ(LookAfter(seconds(1), {5, 7}), 7u);
}

TEST_F(DepartedWorkTest, TheLongestOfThoseThatAreStillThereIsKnown) {
  EXPECT_EQ(work_.longest(), seconds(0));
  LookAfter(seconds(1), {7});
  EXPECT_EQ(work_.longest(), seconds(0)) << "it was not there yet a second ago";
  LookAfter(seconds(2), {5, 7});
  LookAfter(seconds(3), {5, 7});
  EXPECT_EQ(work_.longest(), seconds(5));
  LookAfter(seconds(1), {5});
  EXPECT_EQ(work_.longest(), seconds(4));
  LookAfter(seconds(1), {});
  EXPECT_EQ(work_.longest(), seconds(0));
}

TEST_F(DepartedWorkTest, TimeBeforeTheClientLeftDoesNotCount) {
  EXPECT_EQ(LookAfter(seconds(100), {}), std::nullopt);
  EXPECT_EQ(LookAfter(seconds(100), {7}), std::nullopt);
  EXPECT_EQ(LookAfter(seconds(9), {7}), std::nullopt);
  EXPECT_EQ(LookAfter(seconds(1), {7}), 7u);
}

TEST_F(DepartedWorkTest, TimeThatOthersKeptTheGpuDoesNotCount) {
  EXPECT_EQ(LookAfter(seconds(1), {7}), std::nullopt);
  EXPECT_EQ(LookAfter(seconds(9), {7}), std::nullopt);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(LookAfter(seconds(5), {7}, /*is_kept_away=*/true), std::nullopt);
  EXPECT_EQ(LookAfter(seconds(1), {7}), 7u);
}

TEST_F(DepartedWorkTest, WhatKeepsAnotherDeviceBusyIsNoExcuse) {
  const std::vector<bool> first_is_taken = {true, false};
  const std::vector<seconds> on_second = {seconds(0), seconds(5)};
  EXPECT_EQ(LookAfter(seconds(5), {7}, on_second, first_is_taken), std::nullopt);
  EXPECT_EQ(LookAfter(seconds(5), {7}, on_second, first_is_taken), std::nullopt);
  EXPECT_EQ(LookAfter(seconds(5), {7}, on_second, first_is_taken), 7u);
}

TEST_F(DepartedWorkTest, WorkOnBothMayWaitForTheOneThatIsTaken) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(LookAfter(seconds(5), {7}, {seconds(5), seconds(5)}, {true, false}), std::nullopt);
  }
}

TEST_F(DepartedWorkTest, WhatHasNotBegunMayBeHeldOnAny) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(LookAfter(seconds(5), {7}, {seconds(0), seconds(0)}, {false, true}), std::nullopt);
  }
  EXPECT_EQ(LookAfter(seconds(10), {7}, {seconds(0), seconds(0)}, {false, false}), 7u);
}

TEST_F(DepartedWorkTest, WithoutALimitItMayGoOn) {
  DepartedWork unlimited(seconds(0));
  EXPECT_EQ(unlimited.Look({{7, {}}}, {false}, clock_.Now()), std::nullopt);
  clock_.Advance(std::chrono::hours(1));
  EXPECT_EQ(unlimited.Look({{7, {}}}, {false}, clock_.Now()), std::nullopt);
}

}  // namespace
}  // namespace tally::server
