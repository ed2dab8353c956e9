#include "scheduler/share_cap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <vector>

namespace tally::scheduler {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;
using std::chrono_literals::operator""ns;

constexpr TimePoint kStart{1000s};
// A drained device is seen so late.
constexpr Nanoseconds kLate = 70us;

// A program that always has a next operation, on a GPU of its own: they run one after another.
class Program {
 public:
  Program(std::atomic<int64_t>& word, uint32_t permille, std::function<Nanoseconds()> next)
      : bucket_(word, permille), next_(std::move(next)) {}

  // Until it has to wait, or `end`: puts what it may. The time when it is to be called again.
  TimePoint Run(TimePoint now, TimePoint end) {
    while (now < end) {
      const ShareBursts::Facts facts{BusyUntil(now), num_put_, ends_at_ + kLate <= now};
      switch (bursts_.Next(facts, bucket_, now)) {
        case ShareBursts::Answer::kGo: {
          if (facts.is_idle) {
            before_ += ends_at_ - began_;
            began_ = ends_at_ = now;
          }
          const Nanoseconds takes = next_();
          ends_at_ = std::max(ends_at_, now) + takes;
          ++num_put_;
          now += 3us;
          break;
        }
        case ShareBursts::Answer::kDrain:
          return std::max(ends_at_ + kLate, now + 1us);
        case ShareBursts::Answer::kWait:
          return bucket_.MayGoAt() + 60us;  // a sleep ends late
      }
    }
    return now;
  }
  // As its busy clock says.
  Nanoseconds BusyUntil(TimePoint now) const {
    return before_ + (ends_at_ + kLate <= now ? ends_at_ - began_ : std::max(now, began_) - began_);
  }

 private:
  ShareBucket bucket_;
  ShareBursts bursts_;
  const std::function<Nanoseconds()> next_;
  TimePoint began_ = kStart;
  TimePoint ends_at_ = kStart;
  Nanoseconds before_{0};
  uint64_t num_put_ = 0;
};

// What they have together of each second but the first.
std::vector<double> SharesOf(std::vector<Program> programs, int seconds) {
  std::vector<TimePoint> due(programs.size(), kStart);
  std::vector<double> shares;
  Nanoseconds before{0};
  for (int second = 1; second <= seconds; ++second) {
    const TimePoint end = kStart + std::chrono::seconds(second);
    for (;;) {
      const size_t next = static_cast<size_t>(std::ranges::min_element(due) - due.begin());
      if (due[next] >= end) break;
      due[next] = programs[next].Run(due[next], std::min(end, due[next] + 1ms));
    }
    Nanoseconds busy{0};
    for (const Program& program : programs) busy += program.BusyUntil(end);
    if (second > 1) shares.push_back(std::chrono::duration<double>(busy - before).count());
    before = busy;
  }
  return shares;
}

TEST(ShareCap, KernelsOfAnyLengthHaveTheirShareOfEachSecond) {
  for (const uint32_t permille : {50u, 100u, 300u, 600u, 900u}) {
    for (const Nanoseconds length : std::vector<Nanoseconds>{10us, 50us, 300us, 1ms, 4ms, 15ms, 50ms}) {
      std::atomic<int64_t> word{0};
      std::vector<Program> programs;
      programs.emplace_back(word, permille, [&] { return length; });
      for (const double share : SharesOf(std::move(programs), 12)) {
        EXPECT_NEAR(share, permille / 1000.0, 0.03 + 1e-3) << permille << " of kernels of " << length.count() << " ns";
      }
    }
  }
}

TEST(ShareCap, ProgramsOfATenantHaveItTogetherAndOtherTenantsHaveTheirOwn) {
  for (const size_t num_programs : {2u, 5u, 20u}) {
    std::atomic<int64_t> ours{0}, theirs{0};
    std::vector<Program> programs, others;
    for (size_t i = 0; i < num_programs; ++i) programs.emplace_back(ours, 300, [] { return 200us; });
    others.emplace_back(theirs, 500, [] { return 1ms; });
    for (const double share : SharesOf(std::move(programs), 6)) EXPECT_NEAR(share, 0.3, 0.03) << num_programs;
    for (const double share : SharesOf(std::move(others), 6)) EXPECT_NEAR(share, 0.5, 0.03);
  }
}

TEST(ShareCap, LengthsThatChangeAtRandomKeepToIt) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    std::atomic<int64_t> word{0};
    std::vector<Program> programs;
    std::uniform_int_distribution<int64_t> exponent(10, 22);  // 1 us to 4 ms
    programs.emplace_back(word, 300, [&] { return Nanoseconds(int64_t{1} << exponent(random)); });
    double sum = 0;
    const auto shares = SharesOf(std::move(programs), 21);
    for (const double share : shares) sum += share;
    EXPECT_NEAR(sum / static_cast<double>(shares.size()), 0.3, 0.03) << seed;
  }
}

TEST(ShareCap, TimeThatWasNotWantedIsNotKept) {
  std::atomic<int64_t> word{0};
  ShareBucket bucket(word, 500);
  bucket.Begin(10ms, kStart);
  EXPECT_EQ(bucket.MayGoAt(), kStart - ShareBucket::kCredit + 20ms);
  bucket.Begin(10ms, kStart + 10s);
  EXPECT_EQ(bucket.MayGoAt(), kStart + 10s - ShareBucket::kCredit + 20ms);
}

TEST(ShareCap, WhatABurstReallyTookIsSetRight) {
  std::atomic<int64_t> word{0};
  ShareBucket bucket(word, 250);
  bucket.Begin(10ms, kStart);
  bucket.Settle(30ms, kStart + 40ms);
  EXPECT_EQ(bucket.MayGoAt(), kStart - ShareBucket::kCredit + 160ms);
  bucket.Settle(-10ms, kStart + 40ms);
  EXPECT_EQ(bucket.MayGoAt(), kStart - ShareBucket::kCredit + 120ms);
}

TEST(ShareCap, ADebtHasAnEnd) {
  std::atomic<int64_t> word{0};
  ShareBucket bucket(word, 1);
  bucket.Settle(3600s, kStart);
  EXPECT_EQ(bucket.MayGoAt(), kStart + ShareBucket::kLongestDebt);
}

// Too many long ones would be on their way before it is noticed.
TEST(ShareCap, TheFirstOperationGoesAlone) {
  std::atomic<int64_t> word{0};
  ShareBucket bucket(word, 500);
  ShareBursts bursts;
  EXPECT_EQ(bursts.Next({0ns, 0, true}, bucket, kStart), ShareBursts::Answer::kGo);
  EXPECT_EQ(bursts.Next({0ns, 1, false}, bucket, kStart), ShareBursts::Answer::kDrain);
  EXPECT_EQ(bursts.Next({5ms, 1, true}, bucket, kStart + 5ms), ShareBursts::Answer::kWait);
  EXPECT_EQ(bursts.Next({5ms, 1, true}, bucket, kStart + 11ms), ShareBursts::Answer::kGo);
}

// What it had reserved and did not need is the others'.
TEST(ShareCap, AProgramThatEndsGivesBackWhatItDidNotUse) {
  std::atomic<int64_t> word{0};
  ShareBucket bucket(word, 500);
  ShareBursts bursts;
  ASSERT_EQ(bursts.Next({0ns, 0, true}, bucket, kStart), ShareBursts::Answer::kGo);
  bursts.End({100us, 1, true}, bucket, kStart + 100us);
  EXPECT_EQ(bucket.MayGoAt(), kStart - ShareBucket::kCredit + 200us);
}

}  // namespace
}  // namespace tally::scheduler
