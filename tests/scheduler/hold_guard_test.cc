#include "scheduler/hold_guard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace tally::scheduler {
namespace {

using std::chrono::nanoseconds;

// A service whose requests take `held` times as long where the GPU is held. The share of them that it was held for.
double ShareHeld(HoldGuard& guard, double held, double spread, int num_requests, std::mt19937& random,
                 double us = 5000) {
  std::lognormal_distribution<double> took_us(std::log(us), spread);
  int num_held = 0;
  for (int i = 0; i < num_requests; ++i) {
    num_held += guard.holds();
    guard.OnRequest(nanoseconds(static_cast<int64_t>(1000 * took_us(random) * (guard.holds() ? held : 1))));
  }
  return static_cast<double>(num_held) / num_requests;
}

constexpr int kTrial = 2 * HoldGuard::kRound * HoldGuard::kNumTurns;

TEST(HoldGuardTest, WhatMakesRequestsShorterIsUsed) {
  std::mt19937 random(1);
  double sum = 0;
  for (int i = 0; i < 50; ++i) {
    HoldGuard guard;
    ShareHeld(guard, 0.95, 0.1, 4 * kTrial, random);
    sum += ShareHeld(guard, 0.95, 0.1, 20'000, random);
  }
  EXPECT_GT(sum / 50, 0.9);
}

TEST(HoldGuardTest, WhatMakesThemShorterIsUsedAfterAFewRounds) {
  std::mt19937 random(7);
  for (int i = 0; i < 50; ++i) {
    HoldGuard guard;
    ShareHeld(guard, 0.8, 0.1, kTrial + HoldGuard::kRound, random);
    EXPECT_TRUE(guard.prefers_holding());
  }
}

// A hundredth of its requests is what its p99 sees.
TEST(HoldGuardTest, WhatMakesThemLongerIsSeldomTried) {
  std::mt19937 random(2);
  for (const double held : {1.05, 1.3}) {
    double sum = 0;
    for (int i = 0; i < 50; ++i) {
      HoldGuard guard;
      ShareHeld(guard, held, 0.1, 8 * kTrial, random);
      sum += ShareHeld(guard, held, 0.1, 20'000, random);
    }
    EXPECT_LT(sum / 50, 0.01) << held;
    EXPECT_GT(sum / 50, 0.002) << held << ": it may change";
  }
}
TEST(HoldGuardTest, WhatMakesThemShorterIsSeldomLeft) {
  std::mt19937 random(8);
  HoldGuard guard;
  ShareHeld(guard, 0.8, 0.1, 8 * kTrial, random);
  EXPECT_GT(ShareHeld(guard, 0.8, 0.1, 50'000, random), 0.99);
}

// However uneven requests are: chance alone seldom has the GPU held, and not for long.
TEST(HoldGuardTest, ChanceAloneSeldomHolds) {
  std::mt19937 random(3);
  for (const double spread : {0.0, 0.1, 1.0}) {
    double sum = 0;
    for (int i = 0; i < 50; ++i) {
      HoldGuard guard;
      sum += ShareHeld(guard, 1, spread, 40'000, random);
    }
    EXPECT_LT(sum / 50, 0.2) << spread;
  }
}

TEST(HoldGuardTest, FollowsAServiceThatChanges) {
  std::mt19937 random(4);
  HoldGuard guard;
  ShareHeld(guard, 0.8, 0.1, 2000, random);
  EXPECT_TRUE(guard.prefers_holding());
  ShareHeld(guard, 1.2, 0.1, 10'000, random);
  EXPECT_LT(ShareHeld(guard, 1.2, 0.1, 10'000, random), 0.01);
  ShareHeld(guard, 0.8, 0.1, 10'000, random);
  EXPECT_GT(ShareHeld(guard, 0.8, 0.1, 10'000, random), 0.98);
}

// At a low load requests gain nothing, at a high one a fifth: each second in which that is not known, a queue grows.
// Nor must what is known of long requests stand against short ones.
TEST(HoldGuardTest, AServiceThatGainsMuchAtOnceIsFoundAtTheNextTurns) {
  std::mt19937 random(6);
  for (int i = 0; i < 20; ++i) {
    for (const double us_then : {5000., 1500.}) {
      HoldGuard guard;
      ShareHeld(guard, 1, 0.02, 20'000, random);
      ShareHeld(guard, 0.8, 0.02, HoldGuard::kRound * (HoldGuard::kRoundsBetween + 2) + 2 * kTrial, random, us_then);
      EXPECT_TRUE(guard.prefers_holding()) << i << " " << us_then;
    }
    HoldGuard guard;
    ShareHeld(guard, 0.7, 0.02, 20'000, random);
    ShareHeld(guard, 1.2, 0.02, HoldGuard::kRound * (HoldGuard::kRoundsBetweenKnown + 2) + 2 * kTrial, random);
    EXPECT_FALSE(guard.prefers_holding()) << i;
  }
}

// Beside a training that pauses, holding is known to be useless. When it goes on, requests pay for switches.
TEST(HoldGuardTest, WhatIsKnownIsOfRequestsOfThatLength) {
  std::mt19937 random(11);
  for (int i = 0; i < 20; ++i) {
    HoldGuard guard;
    ShareHeld(guard, 1.03, 0.02, 20'000, random, 750);
    EXPECT_FALSE(guard.prefers_holding());
    ShareHeld(guard, 0.8, 0.02, HoldGuard::kRound * (HoldGuard::kRoundsBetween + 2) + 2 * kTrial, random, 930);
    EXPECT_TRUE(guard.prefers_holding()) << i;
    ShareHeld(guard, 0.8, 0.02, 20'000, random, 930);
    ShareHeld(guard, 1.03, 0.02, HoldGuard::kRound * (HoldGuard::kRoundsBetween + 2) + 2 * kTrial, random, 650);
    EXPECT_FALSE(guard.prefers_holding()) << i;
  }
}

// A program that waits for the GPU hundreds of times for next to nothing, as when it starts or calibrates a clock.
TEST(HoldGuardTest, BurstsOfOtherRequestsSayLittle) {
  std::mt19937 random(9);
  for (int i = 0; i < 20; ++i) {
    HoldGuard guard;
    for (int burst = 0; burst < 10; ++burst) {
      ShareHeld(guard, 1, 0.1, 200, random, 14);
      ShareHeld(guard, 0.93, 0.05, 1000, random, 880);
    }
    EXPECT_TRUE(guard.prefers_holding()) << i;
    EXPECT_GT(ShareHeld(guard, 0.93, 0.05, 1000, random, 880), 0.8) << i;
  }
}

TEST(HoldGuardTest, RequestsOfTwoSortsAreComparedAllTheSame) {
  std::mt19937 random(10);
  HoldGuard guard;
  for (int i = 0; i < 20'000; ++i) ShareHeld(guard, 0.8, 0.05, 1, random, random() % 2 == 0 ? 300 : 3000);
  EXPECT_TRUE(guard.prefers_holding());
}

TEST(HoldGuardTest, TimesThatCannotBeAreTimesAllTheSame) {
  HoldGuard guard;
  for (int i = 0; i < 10'000; ++i) {
    guard.OnRequest(i % 3 == 0 ? nanoseconds::min() : i % 3 == 1 ? nanoseconds::max() : nanoseconds(0));
  }
  std::mt19937 random(5);
  ShareHeld(guard, 1.2, 0.1, 20'000, random);
  EXPECT_FALSE(guard.prefers_holding());
}

}  // namespace
}  // namespace tally::scheduler
