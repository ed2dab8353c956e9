// The feedback against many simulated services: what its latency is as a function of the throttle level, and how it
// scatters.
#include "scheduler/slo_feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace tally::scheduler {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr double kStep = 1.0 / 32;
constexpr Slo kSlo{99, milliseconds(2)};

// Latency (p99, in multiples of the objective) by throttle level; falling.
using Service = std::function<double(double throttle_level)>;

Service RandomService(std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  const double least = 0.2 + uniform(random);  // above 1: the objective cannot be met
  const double extra = 4 * uniform(random);    // at throttle level 0
  const double where = uniform(random);        // of a cliff
  const double steepness = 2 + 200 * uniform(random);
  if (random() % 2 == 0) return [=](double throttle_level) { return least + extra * (1 - throttle_level); };
  return [=](double throttle_level) { return least + extra / (1 + std::exp(steepness * (throttle_level - where))); };
}

// A controller with the same front as SloFeedback; after one window at a time, the throttle level.
template <typename Controller>
std::vector<double> Drive(Controller& controller, const Service& service, int num_windows, double scatter,
                          std::mt19937_64& random) {
  std::exponential_distribution<double> exponential(1);
  std::vector<double> throttle_levels;
  for (int window = 0; window < num_windows; ++window) {
    const double p99 = service(controller.throttle_level()) * static_cast<double>(kSlo.latency.count());
    for (uint64_t i = 0; i < controller.window(); ++i) {
      // Scattered so that the 99th percentile is p99.
      const double latency = p99 * ((1 - scatter) + scatter * exponential(random) / std::log(100.0));
      controller.OnLatency(nanoseconds(static_cast<int64_t>(latency)));
    }
    throttle_levels.push_back(controller.throttle_level());
  }
  return throttle_levels;
}

int NumReversals(const std::vector<double>& throttle_levels) {
  int num = 0;
  double direction = 0;
  for (size_t i = 1; i < throttle_levels.size(); ++i) {
    const double change = throttle_levels[i] - throttle_levels[i - 1];
    if (change == 0) continue;
    if (change * direction < 0) ++num;
    direction = change;
  }
  return num;
}

// How far it came down again after having been up. Scatter alone may make it drift upwards, once.
double LargestFall(const std::vector<double>& throttle_levels) {
  double most = 0;
  double fall = 0;
  for (const double throttle_level : throttle_levels) {
    most = std::max(most, throttle_level);
    fall = std::max(fall, most - throttle_level);
  }
  return fall;
}

// What a stationary load must look like: few reversals, fewer and fewer, and no large falls at the end.
template <typename Controller>
std::string WhatOscillates(double scatter, int num_services, double largest_fall) {
  std::mt19937_64 random(7);
  for (int i = 0; i < num_services; ++i) {
    const Service service = RandomService(random);
    Controller controller;
    const std::vector<double> throttle_levels = Drive(controller, service, 600, scatter, random);
    if (NumReversals(throttle_levels) > 18) return "reversals: " + std::to_string(NumReversals(throttle_levels));
    const std::vector<double> last(throttle_levels.end() - 300, throttle_levels.end());
    if (NumReversals(last) > 6) return "late reversals: " + std::to_string(NumReversals(last));
    if (LargestFall(last) > largest_fall) return "falls by " + std::to_string(LargestFall(last));
  }
  return "";
}

struct Ours : SloFeedback {
  Ours() : SloFeedback({.slo = kSlo}) {}
};

// The obvious controller: a step up when the objective is missed, a step down when it is met.
struct BangBang {
  bool OnLatency(nanoseconds latency) {
    latencies.Add(latency);
    if (latencies.num() < window()) return false;
    at = std::clamp(at + (latencies.Quantile(99) > kSlo.latency ? kStep : -kStep), 0.0, 1.0);
    latencies.Clear();
    return true;
  }
  double throttle_level() const { return at; }
  uint64_t window() const { return 200; }
  LatencyHistogram latencies;
  double at = 0.5;
};

// Moves in proportion to the error.
struct Proportional : BangBang {
  bool OnLatency(nanoseconds latency) {
    latencies.Add(latency);
    if (latencies.num() < window()) return false;
    at = std::clamp(at + static_cast<double>((latencies.Quantile(99) - kSlo.latency).count()) / 2e6, 0.0, 1.0);
    latencies.Clear();
    return true;
  }
};

TEST(SloFeedback, StartsWithTheDefaultTuning) {
  const Tuning tuning = Ours().tuning();
  const auto is_about = [](nanoseconds value, nanoseconds wanted) {
    EXPECT_NEAR(static_cast<double>(value.count()) / static_cast<double>(wanted.count()), 1, 0.001);
  };
  is_about(tuning.turnaround_threshold, Tuning{}.turnaround_threshold);
  is_about(tuning.min_hold_off, Tuning{}.min_hold_off);
  is_about(tuning.max_hold_off, Tuning{}.max_hold_off);
  is_about(tuning.target_drain, Tuning{}.target_drain);
}

TEST(SloFeedback, StaysWithinItsBounds) {
  const SloFeedback::Config config{.slo = kSlo};
  SloFeedback feedback(config);
  for (int i = 0; i < 100'000; ++i) feedback.OnLatency(milliseconds(100));
  EXPECT_EQ(feedback.tuning(), config.most_careful);
  for (int i = 0; i < 1'000'000; ++i) feedback.OnLatency(nanoseconds(1000));
  EXPECT_EQ(feedback.tuning(), config.most_generous);
}

TEST(SloFeedback, NeedsEnoughLatenciesForThePercentile) {
  EXPECT_EQ(SloFeedback({.slo = {50, milliseconds(1)}}).window(), 200u);
  EXPECT_EQ(SloFeedback({.slo = {99.9, milliseconds(1)}}).window(), 2000u);
}

TEST(SloFeedbackProperty, DoesNotOscillateWithoutScatter) { EXPECT_EQ(WhatOscillates<Ours>(0, 300, 1.01 * kStep), ""); }
TEST(SloFeedbackProperty, DoesNotOscillateWithScatter) { EXPECT_EQ(WhatOscillates<Ours>(0.3, 300, 2.01 * kStep), ""); }

TEST(SloFeedbackProperty, MeetsTheObjectiveWhereThatIsPossible) {
  std::mt19937_64 random(8);
  int num_possible = 0;
  for (int i = 0; i < 300; ++i) {
    const Service service = RandomService(random);
    Ours feedback;
    Drive(feedback, service, 600, 0, random);
    if (service(1) > 0.97) {
      if (service(1) > 1.01) {
        EXPECT_EQ(feedback.throttle_level(), 1);
      }
      continue;
    }
    ++num_possible;
    ASSERT_LE(service(feedback.throttle_level()), 1.0) << "service " << i;
    // And no more careful than needed: two steps less would miss it or come close.
    if (feedback.throttle_level() > 2 * kStep) {
      ASSERT_GT(service(feedback.throttle_level() - 2 * kStep), 0.65) << "service " << i;
    }
  }
  EXPECT_GT(num_possible, 150);
}

TEST(SloFeedbackProperty, AnswersAJumpWithinSevenWindows) {
  std::mt19937_64 random(9);
  for (int i = 0; i < 500; ++i) {
    const double needed = std::uniform_real_distribution<double>(0, 1)(random);
    const Service quiet = [](double) { return 0.1; };
    const Service loaded = [needed](double throttle_level) { return throttle_level >= needed ? 0.8 : 5.0; };
    Ours feedback;
    Drive(feedback, quiet, static_cast<int>(random() % 300), 0, random);
    const double before = feedback.throttle_level();
    const std::vector<double> throttle_levels = Drive(feedback, loaded, 20, 0, random);
    ASSERT_GE(throttle_levels[6], needed) << "service " << i;
    for (size_t window = 7; window < throttle_levels.size(); ++window) {
      ASSERT_EQ(throttle_levels[window], throttle_levels[6]) << "it stays there";
    }
    // Doubling steps overshoot by less than the largest step.
    ASSERT_LE(throttle_levels[6], std::max(before, std::min(1.0, needed + 8.01 * kStep)));
  }
}

TEST(SloFeedbackProperty, BecomesGenerousAgain) {
  std::mt19937_64 random(10);
  Ours feedback;
  Drive(
      feedback, [](double) { return 3.0; }, 20, 0, random);
  EXPECT_EQ(feedback.throttle_level(), 1);
  Drive(
      feedback, [](double) { return 0.2; }, 4 * 32, 0, random);
  EXPECT_EQ(feedback.throttle_level(), 0);
}

TEST(SloFeedbackPropertyCatches, ControllersThatOscillate) {
  EXPECT_NE(WhatOscillates<BangBang>(0, 100, 2.01 * kStep), "");
  EXPECT_NE(WhatOscillates<Proportional>(0, 100, 2.01 * kStep), "");
}

}  // namespace
}  // namespace tally::scheduler
