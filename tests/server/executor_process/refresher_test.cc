#include "server/executor_process/refresher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "server/gpu/high_priority_watch.h"

namespace tally::server {
namespace {

using std::chrono::milliseconds;

// High-priority work of this executor that comes and goes as a test says.
class Watch final : public HighPriorityWatch {
 public:
  bool IsClosed(int) override { return is_closed.load(); }
  bool IsHighPriorityPresent() override { return true; }
  bool IsOneOfThem() override { return is_one_of_them.load(); }
  TimePoint ClosedSince(int) override { return {}; }
  TimePoint OpenSince(int) override { return opened_at.load(); }
  void WaitWhileOpen(int, std::chrono::nanoseconds timeout) override { WaitWhile(false, timeout); }
  void WaitWhileClosed(int, std::chrono::nanoseconds timeout) override { WaitWhile(true, timeout); }
  std::optional<uint32_t> QuietPhase(int) override {
    return is_closed ? std::nullopt : std::optional(num_times_busy.load());
  }

  void Close() {
    ++num_times_busy;
    is_closed = true;
  }
  void Open() {
    opened_at = clock.Now();
    is_closed = false;
  }

  const SteadyClock clock;
  std::atomic<TimePoint> opened_at{TimePoint{}};
  std::atomic<uint32_t> num_times_busy{0};
  std::atomic<bool> is_closed{false};
  std::atomic<bool> is_one_of_them{true};

 private:
  void WaitWhile(bool closed, std::chrono::nanoseconds timeout) {
    const TimePoint limit = clock.Now() + timeout;
    while (is_closed == closed && clock.Now() < limit) std::this_thread::sleep_for(std::chrono::microseconds(10));
  }
};

class RefresherTest : public testing::Test {
 protected:
  static constexpr Refresher::Times kTimes{
      .between = milliseconds(5), .pause = milliseconds(1), .patience = milliseconds(5)};

  size_t Preempt() {
    ++num_asked_;
    was_closed_ = was_closed_ || watch_.is_closed;
    return num_groups_;
  }
  bool IsAskedMoreThan(int count) {
    for (int i = 0; i < 5000 && num_asked_ <= count; ++i) std::this_thread::sleep_for(milliseconds(1));
    return num_asked_ > count;
  }

  Watch watch_;
  std::atomic<int> num_asked_{0};
  std::atomic<bool> was_closed_{false};
  std::atomic<size_t> num_groups_{1};
};

TEST_F(RefresherTest, OnceAfterWorkAndNotAgainWithoutIt) {
  Refresher refresher(
      watch_, 0, [this] { return Preempt(); }, kTimes);
  EXPECT_TRUE(IsAskedMoreThan(0));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(num_asked_, 1);
  EXPECT_EQ(refresher.num_refreshes(), 1u);
  watch_.Close();
  watch_.Open();
  EXPECT_TRUE(IsAskedMoreThan(1));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(num_asked_, 2);
}

TEST_F(RefresherTest, WaitsForTheEndOfTheWork) {
  watch_.Close();
  Refresher refresher(
      watch_, 0, [this] { return Preempt(); }, kTimes);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(num_asked_, 0);
  watch_.Open();
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
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(num_asked_, 0);
}

TEST_F(RefresherTest, EndsAtOnce) {
  const auto began = watch_.clock.Now();
  {
    const Refresher refresher(watch_, 0, [this] { return Preempt(); }, {.between = std::chrono::seconds(60)});
  }
  EXPECT_LT(watch_.clock.Now() - began, std::chrono::seconds(30));
}

}  // namespace
}  // namespace tally::server
