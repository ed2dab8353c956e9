#include "server/executor/process/refresher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/server/executor/fakes/scripted_watch.h"

namespace tally::server {
namespace {

using std::chrono::milliseconds;

class RefresherTest : public testing::Test {
 protected:
  void SetUp() override { watch_.is_one_of_them = true; }

  static constexpr Refresher::Times kTimes{
      .between = milliseconds(5), .pause = milliseconds(1), .patience = milliseconds(5)};

  size_t Preempt() {
    ++num_asked_;
    was_closed_ = was_closed_ || watch_.IsClosed(0);
    return num_groups_;
  }
  bool IsAskedMoreThan(int count) {
    for (int i = 0; i < 5000 && num_asked_ <= count; ++i) std::this_thread::sleep_for(milliseconds(1));
    return num_asked_ > count;
  }

  // A refresher that was to ask has asked: it has looked several times more.
  void AwaitRounds() {
    const uint64_t enough = watch_.num_looks + 5;
    while (watch_.num_looks < enough) std::this_thread::sleep_for(milliseconds(1));
  }

  ScriptedWatch watch_;
  std::atomic<int> num_asked_{0};
  std::atomic<bool> was_closed_{false};
  std::atomic<size_t> num_groups_{1};
};

TEST_F(RefresherTest, OnceAfterWorkAndNotAgainWithoutIt) {
  Refresher refresher(
      watch_, 0, [this] { return Preempt(); }, kTimes);
  EXPECT_TRUE(IsAskedMoreThan(0));
  AwaitRounds();
  EXPECT_EQ(num_asked_, 1);
  EXPECT_EQ(refresher.num_refreshes(), 1u);
  watch_.SetClosed(true);
  watch_.SetClosed(false);
  EXPECT_TRUE(IsAskedMoreThan(1));
  AwaitRounds();
  EXPECT_EQ(num_asked_, 2);
}

TEST_F(RefresherTest, WaitsForTheEndOfTheWork) {
  watch_.SetClosed(true);
  Refresher refresher(
      watch_, 0, [this] { return Preempt(); }, kTimes);
  AwaitRounds();
  EXPECT_EQ(num_asked_, 0);
  watch_.SetClosed(false);
  EXPECT_TRUE(IsAskedMoreThan(0));
  EXPECT_FALSE(was_closed_);
}

TEST_F(RefresherTest, WhatWasNotPreemptedIsAskedForAgain) {
  num_groups_ = 0;
  Refresher refresher(
      watch_, 0, [this] { return Preempt(); }, kTimes);
  EXPECT_TRUE(IsAskedMoreThan(2));
  EXPECT_EQ(refresher.num_refreshes(), 0u);
}

TEST_F(RefresherTest, NotWhereNoHighPriorityWorkRan) {
  watch_.is_one_of_them = false;
  const Refresher refresher(
      watch_, 0, [this] { return Preempt(); }, kTimes);
  AwaitRounds();
  EXPECT_EQ(num_asked_, 0);
}

TEST_F(RefresherTest, NotOnADeviceWhereOnlyOthersWorked) {
  const Refresher refresher(
      watch_, 1, [this] { return Preempt(); }, kTimes);
  AwaitRounds();
  EXPECT_EQ(num_asked_, 0);
}

TEST_F(RefresherTest, EndsAtOnce) {
  const auto began = SteadyClock().Now();
  {
    const Refresher refresher(watch_, 0, [this] { return Preempt(); }, {.between = std::chrono::seconds(60)});
  }
  EXPECT_LT(SteadyClock().Now() - began, std::chrono::seconds(30));
}

}  // namespace
}  // namespace tally::server
