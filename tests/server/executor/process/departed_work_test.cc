#include "server/executor/process/departed_work.h"

#include <gtest/gtest.h>

namespace tally::server {
namespace {

using std::chrono::seconds;

class DepartedWorkTest : public testing::Test {
 protected:
  std::optional<uint64_t> LookAfter(seconds passed, const std::vector<uint64_t>& draining, bool is_kept_away = false) {
    clock_.Advance(passed);
    return work_.Look(draining, is_kept_away, clock_.Now());
  }

  ManualClock clock_;
  DepartedWork work_{seconds(10)};
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

TEST_F(DepartedWorkTest, WithoutALimitItMayGoOn) {
  DepartedWork unlimited(seconds(0));
  EXPECT_EQ(unlimited.Look({7}, false, clock_.Now()), std::nullopt);
  clock_.Advance(std::chrono::hours(1));
  EXPECT_EQ(unlimited.Look({7}, false, clock_.Now()), std::nullopt);
}

}  // namespace
}  // namespace tally::server
