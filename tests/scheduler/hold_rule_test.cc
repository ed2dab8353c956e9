#include "scheduler/hold_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using Gaps = std::vector<nanoseconds>;

constexpr microseconds kRequest{100};

struct Played {
  double cost = 0;
  nanoseconds time{0};
  std::vector<nanoseconds> holds;
  std::vector<double> weights;  // of each gap
};

Played Play(HoldRule& rule, const HoldRule::Config& config, const Gaps& gaps,
            TimePoint now = TimePoint{milliseconds(1)}, nanoseconds request = kRequest) {
  Played played;
  const TimePoint begin = now;
  for (const auto gap : gaps) {
    now += request;
    const auto hold = rule.OnIdle(now, true);
    now += gap;
    rule.OnBusy(now);
    played.cost += HoldRule::Cost(config, rule.weight(), hold, gap);
    played.holds.push_back(hold);
    played.weights.push_back(rule.weight());
  }
  played.time = now - begin;
  return played;
}

// What a fixed hold would have cost.
double CostOfAlways(const HoldRule::Config& config, nanoseconds hold, const Gaps& gaps, const Played& played) {
  double sum = 0;
  for (size_t i = 0; i < gaps.size(); ++i) sum += HoldRule::Cost(config, played.weights[i], hold, gaps[i]);
  return sum;
}

// The cheapest one, by trying every multiple of 20 us.
double BruteForce(const HoldRule::Config& config, const Gaps& gaps, const Played& played) {
  double best = CostOfAlways(config, nanoseconds(0), gaps, played);
  for (auto hold = microseconds(20); hold <= milliseconds(3); hold += microseconds(20)) {
    best = std::min(best, CostOfAlways(config, hold, gaps, played));
  }
  return best;
}

// Short gaps with a spread, and between them long ones: a program with requests of several kernels.
struct Service {
  double short_us, spread, long_us, share_of_long;
  static Service Any(std::mt19937& random) {
    const auto between = [&](double least, double most) {
      return least * std::pow(most / least, std::uniform_real_distribution<double>(0, 1)(random));
    };
    return {between(5, 500), between(0.05, 1), between(500, 20'000), between(0.005, 1)};
  }
  void Add(size_t count, std::mt19937& random, Gaps& gaps) const {
    std::lognormal_distribution<double> jitter(0, spread);
    std::exponential_distribution<double> pause(1 / long_us);
    std::bernoulli_distribution is_long(share_of_long);
    for (size_t i = 0; i < count; ++i) {
      const double us = is_long(random) ? pause(random) : short_us * jitter(random);
      gaps.push_back(nanoseconds(static_cast<int64_t>(1000 * us)));
    }
  }
};

Gaps AtRandom(double mean_us, int num_gaps) {
  std::mt19937 random(6);
  std::exponential_distribution<double> gap_us(1 / mean_us);
  Gaps gaps;
  for (int i = 0; i < num_gaps; ++i) gaps.push_back(nanoseconds(static_cast<int64_t>(1000 * gap_us(random))));
  return gaps;
}

HoldRule::Config AnyConfig(std::mt19937& random) {
  HoldRule::Config config;
  config.weight = std::exp2(std::uniform_real_distribution<double>(-2, 1)(random));  // and ten times that under load
  config.switch_time = microseconds(std::uniform_int_distribution<int>(50, 400)(random));
  config.loss = microseconds(std::uniform_int_distribution<int>(0, 400)(random));
  return config;
}

double LongestHold() { return static_cast<double>(HoldRule::HoldAt(HoldRule::kNumHolds - 1).count()); }
double MostAllowed(const HoldRule::Config& config, double cost_without, nanoseconds time) {
  return cost_without + static_cast<double>(config.purse.count()) + LongestHold() +
         config.tithe * static_cast<double>(time.count());
}

TEST(HoldRuleTest, EvenShortGapsAreHeldAndLongOnesAreNot) {
  const HoldRule::Config config;
  HoldRule rule(config);
  EXPECT_EQ(Play(rule, config, Gaps(500, microseconds(60))).holds.back(), HoldRule::HoldAt(5));  // 80 us
  EXPECT_EQ(Play(rule, config, Gaps(2000, milliseconds(2))).holds.back(), nanoseconds(0));
}

// Requests at random, 2 ms apart on average: whatever was waited for, the next one is as far away as before.
TEST(HoldRuleTest, WhatComesAtRandomIsWaitedForOnlyIfItIsWorthIt) {
  const Gaps gaps = AtRandom(2000, 3000);
  HoldRule::Config config;
  config.loss = nanoseconds(0);
  HoldRule rule(config);
  const Played played = Play(rule, config, gaps);
  EXPECT_LT(played.cost, 1.05 * CostOfAlways(config, nanoseconds(0), gaps, played));
  config.weight = 100;  // a switch is worth 20 ms
  HoldRule dear(config);
  EXPECT_GT(Play(dear, config, gaps).holds.back(), milliseconds(1));
}

TEST(HoldRuleTest, NearTheBestFixedHoldOfAnyDistribution) {
  std::mt19937 random(2);
  double sum = 0;
  constexpr int kServices = 150;
  for (int i = 0; i < kServices; ++i) {
    const HoldRule::Config config = AnyConfig(random);
    Gaps gaps;
    Service::Any(random).Add(5000, random, gaps);
    HoldRule rule(config);
    const Played played = Play(rule, config, gaps);
    const double best = BruteForce(config, gaps, played), cost = played.cost;
    EXPECT_LT(cost, 1.5 * best + static_cast<double>(config.purse.count())) << "service " << i;
    sum += cost / best;
  }
  EXPECT_LT(sum / kServices, 1.10);
}

TEST(HoldRuleTest, FollowsAServiceThatChanges) {
  std::mt19937 random(3);
  double sum = 0;
  constexpr int kServices = 60;
  for (int i = 0; i < kServices; ++i) {
    const HoldRule::Config config = AnyConfig(random);
    HoldRule rule(config);
    double best = 0, cost = 0;
    TimePoint now{milliseconds(1)};
    for (int phase = 0; phase < 5; ++phase) {
      Gaps gaps;
      Service::Any(random).Add(3000, random, gaps);
      const Played played = Play(rule, config, gaps, now);
      now += played.time;
      best += BruteForce(config, gaps, played);
      cost += played.cost;
    }
    sum += cost / best;
  }
  EXPECT_LT(sum / kServices, 1.15);
}

// Somebody who knows the rule and sends what comes next just after the hold, for ever.
TEST(HoldRuleTest, NobodyMakesItLoseMoreThanThePurseAndTheTithe) {
  std::mt19937 random(4);
  for (int i = 0; i < 200; ++i) {
    const HoldRule::Config config = AnyConfig(random);
    HoldRule rule(config);
    double cost = 0, without = 0;
    TimePoint now{milliseconds(1)};
    const TimePoint begin = now;
    std::bernoulli_distribution is_bait(0.7);
    for (int k = 0; k < 5000; ++k) {
      now += kRequest;
      const auto hold = rule.OnIdle(now, true);
      const nanoseconds gap =
          hold.count() != 0 && !is_bait(random) ? hold + microseconds(1) + config.loss : nanoseconds(microseconds(50));
      now += gap;
      rule.OnBusy(now);
      cost += HoldRule::Cost(config, rule.weight(), hold, gap);
      without += HoldRule::Cost(config, rule.weight(), nanoseconds(0), gap);
      ASSERT_LE(cost, MostAllowed(config, without, now - begin));
    }
  }
}

// What does not pay for long is no question either: nobody is to find out whether it helps.
TEST(HoldRuleTest, NothingWouldBeHeldWithAnEmptyPurse) {
  HoldRule::Config config;
  config.loss = nanoseconds(0);
  config.purse = microseconds(1);
  config.tithe = 0;
  HoldRule rule(config);
  const Played played = Play(rule, config, Gaps(100, microseconds(60)));
  EXPECT_TRUE(rule.would_hold());
  const TimePoint now = TimePoint{milliseconds(1)} + played.time;
  rule.OnBusy(now + rule.OnIdle(now, true) + microseconds(1));  // just too late
  ASSERT_LE(rule.purse_ns(), 0);
  EXPECT_FALSE(rule.would_hold());
  EXPECT_EQ(rule.OnIdle(now + milliseconds(1), true), nanoseconds(0));
}

// The purse fills up to its size only: what paid for an hour is no licence to lose for a minute.
TEST(HoldRuleTest, WhatPaidForLongIsNotSpentLater) {
  HoldRule::Config config;
  config.loss = nanoseconds(0);
  HoldRule rule(config);
  Play(rule, config, Gaps(100'000, microseconds(60)));
  EXPECT_LE(rule.purse_ns(), static_cast<double>(config.purse.count()));
  const Gaps gaps(2000, microseconds(500));
  const Played later = Play(rule, config, gaps);
  EXPECT_LE(later.cost, MostAllowed(config, CostOfAlways(config, nanoseconds(0), gaps, later), later.time));
}

TEST(HoldRuleTest, ClocksThatJumpTeachNothingAndCostNothing) {
  HoldRule rule({});
  std::mt19937 random(5);
  TimePoint now{std::chrono::hours(1)};
  for (int i = 0; i < 1000; ++i) {
    rule.OnIdle(now, true);
    now += microseconds(60);
    rule.OnBusy(now);
    now += milliseconds(std::uniform_int_distribution<int>(-60'000, 60'000)(random));
  }
  EXPECT_GE(rule.OnIdle(now, true), microseconds(60));
  rule.OnBusy(now - std::chrono::hours(24));
  EXPECT_GE(rule.OnIdle(now, true), microseconds(60));
  rule.OnBusy(TimePoint::max());
  EXPECT_LE(rule.OnIdle(now, true), nanoseconds(static_cast<int64_t>(LongestHold())));
  EXPECT_FALSE(std::isnan(rule.purse_ns()));
}

// So short that nobody could see it: the GPU has turned away all the same.
TEST(HoldRuleTest, AGapOfNoLengthPaysForASwitchUnlessItIsHeld) {
  const HoldRule::Config config;
  EXPECT_GT(HoldRule::Cost(config, 1, nanoseconds(0), nanoseconds(0)), 0);
  EXPECT_EQ(HoldRule::Cost(config, 1, HoldRule::HoldAt(1), nanoseconds(0)), 0);
  HoldRule rule(config);
  EXPECT_FALSE(rule.would_hold());
  Play(rule, config, Gaps(5, nanoseconds(0)));
  EXPECT_TRUE(rule.would_hold());
}

TEST(HoldRuleTest, BusyTwiceIsOneGap) {
  HoldRule rule({});
  const double full = rule.purse_ns();
  rule.OnBusy(TimePoint{milliseconds(5)});
  rule.OnBusy(TimePoint{milliseconds(6)});
  EXPECT_EQ(rule.purse_ns(), full);
  EXPECT_EQ(rule.OnIdle(TimePoint{milliseconds(8)}, true), nanoseconds(0));
}

TEST(HoldRuleTest, NothingIsHeldThatMayNotBeAndGapsTeachAllTheSame) {
  HoldRule rule({});
  TimePoint now{milliseconds(1)};
  for (int i = 0; i < 500; ++i) {
    now += kRequest;
    ASSERT_EQ(rule.OnIdle(now, false), nanoseconds(0));
    now += microseconds(60);
    rule.OnBusy(now);
  }
  EXPECT_GE(rule.OnIdle(now + kRequest, true), microseconds(60));
}

// A queue in front of a GPU: requests at random, each as long, one after another. What comes while the GPU is held pays
// nothing, else 0.3 ms: what comes while the GPU turns away waits for that, too, so it is more than the rule reckons.
constexpr double kSwitchUs = 300;

struct Served {
  double p99_us;
  double best_effort;  // the share of all time that best-effort work has the GPU
};

Served Serve(double request_us, double rate_per_s, const std::function<nanoseconds(TimePoint)>& on_idle,
             const std::function<void(TimePoint)>& on_busy) {
  constexpr int kRequests = 40'000, kLearned = 10'000;
  constexpr double kTurnRoundUs = 25;  // until a service has the next request on the GPU
  const HoldRule::Config config;
  const auto in_us = [](nanoseconds time) { return static_cast<double>(time.count()) / 1000; };
  const auto at = [](double us) { return TimePoint{nanoseconds(static_cast<int64_t>(us * 1000))}; };
  std::mt19937 random(8);
  std::exponential_distribution<double> pause_us(rate_per_s / 1e6);
  std::vector<double> latencies;
  double arrival = 1000, end = 0, hold = 0, best_effort = 0;
  for (int i = 0; i < kRequests; ++i) {
    arrival += pause_us(random);
    const double begin = std::max(arrival, end + kTurnRoundUs);
    on_busy(at(begin));
    const double after_hold = begin - end - hold;
    if (i > kLearned) best_effort += std::max(0.0, after_hold - in_us(config.loss));
    end = begin + request_us + (after_hold > 0 ? kSwitchUs : 0);
    if (i > kLearned) latencies.push_back(end - arrival);
    hold = in_us(on_idle(at(end)));
  }
  std::sort(latencies.begin(), latencies.end());
  return {latencies[latencies.size() * 99 / 100], best_effort / (kRequests - kLearned) * rate_per_s / 1e6};
}

Served ServeBy(HoldRule& rule, double request_us, double rate_per_s) {
  return Serve(
      request_us, rate_per_s, [&](TimePoint now) { return rule.OnIdle(now, true); },
      [&](TimePoint now) { rule.OnBusy(now); });
}
Served ServeHeldFor(nanoseconds hold, double request_us, double rate_per_s) {
  return Serve(
      request_us, rate_per_s, [&](TimePoint) { return hold; }, [](TimePoint) {});
}

// Of requests that queue each follows the last at once: to hold the GPU for it costs nobody anything. So at any load
// the service must be nearly as well off as if it always had the GPU, and best-effort work no worse than if it never
// had.
TEST(HoldRuleTest, AQueueIsServedAsIfItHadTheGpuAtNobodysCost) {
  for (const double request_us : {90., 250., 730., 3000.}) {
    for (const double load : {0.05, 0.2, 0.4, 0.6, 0.8}) {
      HoldRule rule({});
      const double rate = load / request_us * 1e6;
      const Served by_rule = ServeBy(rule, request_us, rate);
      const Served always = ServeHeldFor(milliseconds(10), request_us, rate);
      const Served never = ServeHeldFor(nanoseconds(0), request_us, rate);
      EXPECT_LT(by_rule.p99_us, 1.1 * always.p99_us + 2 * kSwitchUs) << request_us << " " << load;
      EXPECT_LT(by_rule.p99_us, 1.01 * never.p99_us) << request_us << " " << load;
      EXPECT_GT(by_rule.best_effort, 0.95 * never.best_effort - 0.005) << request_us << " " << load;
    }
  }
}

// Where switches would fill all time, most gaps are held. The others are best-effort work's: to hold all would make
// requests no earlier.
TEST(HoldRuleTest, AServiceThatSwitchesWouldFillLeavesSomething) {
  constexpr double kRequestUs = 90, kRate = 2500;
  EXPECT_GT(ServeHeldFor(nanoseconds(0), kRequestUs, kRate).p99_us, 10'000);
  HoldRule rule({});
  const Served by_rule = ServeBy(rule, kRequestUs, kRate);
  EXPECT_LT(by_rule.p99_us, 600);
  EXPECT_GT(by_rule.best_effort, 0.05);
  EXPECT_LT(ServeHeldFor(milliseconds(10), kRequestUs, kRate).best_effort, 0.01);
}

// The weight is that of the load as it is, switches included.
TEST(HoldRuleTest, WhatIsLateAloneWeighsNoMore) {
  HoldRule rule({});
  ServeBy(rule, 100, 100);
  EXPECT_LT(rule.weight(), 1.1);
  ServeBy(rule, 100, 5000);
  EXPECT_GT(rule.weight(), 1.8);
}

// Twice the work of what the GPU can do would be an endless weight.
TEST(HoldRuleTest, AServiceThatNeverPausesHasAWeight) {
  const HoldRule::Config config;
  HoldRule rule(config);
  Play(rule, config, Gaps(3000, microseconds(1)), TimePoint{milliseconds(1)}, milliseconds(1));
  EXPECT_DOUBLE_EQ(rule.weight(), config.weight / (1 - HoldRule::kHighestLoad));
}

// An hour without requests counts as a short gap, and an hour's work as a short one: what comes behind it comes as
// before.
TEST(HoldRuleTest, AnHourIsForgottenAtOnce) {
  const HoldRule::Config config;
  for (const bool is_pause : {true, false}) {
    HoldRule rule(config);
    const Played before = Play(rule, config, Gaps(3000, microseconds(100)));
    const double weight = rule.weight();
    TimePoint now = TimePoint{milliseconds(1)} + before.time;
    now += is_pause ? kRequest : std::chrono::hours(1);
    rule.OnIdle(now, true);
    now += is_pause ? std::chrono::hours(1) : nanoseconds(kRequest);
    rule.OnBusy(now);
    EXPECT_GE(Play(rule, config, Gaps(100, microseconds(100)), now).holds.back(), microseconds(100));
    EXPECT_NEAR(rule.weight(), weight, 0.6) << is_pause;
  }
}

}  // namespace
}  // namespace tally::scheduler
