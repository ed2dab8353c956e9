#include "scheduler/descheduling_rule.h"

#include <gtest/gtest.h>

#include <random>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(DeschedulingRuleTest, LongBusyPeriodsAreNotWaitedForAndShortOnesAre) {
  DeschedulingRule rule;
  EXPECT_EQ(rule.Delay(), DeschedulingRule::kWorthwhile);
  for (int i = 0; i < 5; ++i) rule.OnBusyPeriod(microseconds(200));
  EXPECT_EQ(rule.Delay(), DeschedulingRule::kWorthwhile);
  for (int i = 0; i < 5; ++i) rule.OnBusyPeriod(milliseconds(8));
  EXPECT_EQ(rule.Delay(), microseconds(0));
}

TEST(DeschedulingRuleTest, PatienceStaysWithinItsBounds) {
  DeschedulingRule rule;
  for (int i = 0; i < 100; ++i) rule.OnGap(microseconds(100));
  EXPECT_EQ(rule.patience(), DeschedulingRule::kMostPatience);
  for (int i = 0; i < 100; ++i) rule.OnGap(milliseconds(10));
  EXPECT_EQ(rule.patience(), DeschedulingRule::kLeastPatience);
}

// Gaps within bursts, which jitter around 100 us, and now and then a pause of milliseconds: it learns to sit the former
// out, and does not become as patient as it may be.
TEST(DeschedulingRuleTest, ItLearnsToSitOutTheGapsOfBursts) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> jitter(std::log(100.0), 0.5);
  DeschedulingRule rule;
  int num_regrets = 0, num_pauses = 0;
  for (int i = 0; i < 20'000; ++i) {
    const bool is_pause = i % 10 == 0;
    const auto quiet = is_pause ? milliseconds(5) : microseconds(static_cast<int64_t>(jitter(random)));
    if (quiet <= rule.patience()) continue;  // nothing went on
    if (i >= 1000) ++(is_pause ? num_pauses : num_regrets);
    rule.OnGap(quiet - rule.patience());
  }
  EXPECT_LT(num_regrets, num_pauses / 4);
  EXPECT_GT(num_pauses, 1800);
  EXPECT_LT(rule.patience(), DeschedulingRule::kMostPatience);
}

// A service whose requests of 0.8 ms come in bursts, with pauses of the processor in between that are uneven. Of its
// requests those pay for a switch that best-effort work gets in front of.
struct Service {
  double load = 0.5;
  double mean_burst = 10;  // requests
  double median_pause_us = 100;
  double spread = 0.8;
  double hold_off_us = 200;
};

struct Outcome {
  double share_that_pays = 0;
  double best_effort_share = 0;  // of the time
};

Outcome Serve(const Service& service, bool has_patience) {
  constexpr double kRequest = 800, kDescheduling = 800, kGoingOn = 500;  // us
  std::mt19937 random(7);
  std::lognormal_distribution<double> pause(std::log(service.median_pause_us), service.spread);
  std::geometric_distribution<int> burst(1 / service.mean_burst);
  std::exponential_distribution<double> idle(service.load / ((1 - service.load) * service.mean_burst * kRequest));
  const auto us = [](double time) { return microseconds(static_cast<int64_t>(time)); };
  DeschedulingRule rule;
  double now = 0, best_effort = 0, busy_since = 0, protected_from = kDescheduling;
  int num_paid = 0, num_requests = 0;
  for (int left = 0; num_requests < 20'000; --left, ++num_requests) {
    const bool ends_burst = left <= 0;
    if (ends_burst) left = 1 + burst(random);
    const double gap = pause(random) + (ends_burst ? idle(random) : 0);
    const double patience = has_patience ? static_cast<double>(rule.patience() / microseconds(1)) : 0;
    const bool was_protected = now >= protected_from;
    const double waits_for = service.hold_off_us + patience;
    if (gap > waits_for) {
      rule.OnBusyPeriod(us(now - busy_since));
      const double went_on = now + waits_for + (was_protected ? kGoingOn : 0);
      now += gap;
      best_effort += std::max(0.0, now - went_on);
      rule.OnGap(us(std::max(0.0, now - went_on)));
      busy_since = now;
      protected_from = std::max(now + static_cast<double>(rule.Delay() / microseconds(1)), went_on) + kDescheduling;
      ++num_paid;
    } else {
      now += gap;
      if (now < protected_from) ++num_paid;
    }
    now += kRequest;
  }
  return {static_cast<double>(num_paid) / num_requests, best_effort / now};
}

// With the shortest hold-off every pause ends it: if only what is descheduled already were waited for with patience,
// each request would be a busy period of its own, too short to deschedule, and none would ever be spared.
TEST(DeschedulingRuleTest, PatienceSparesRequestsOfUnevenBurstsAndCostsBestEffortWorkLittle) {
  for (const double hold_off_us : {20, 200}) {
    for (const double load : {0.3, 0.5, 0.7, 0.9}) {
      for (const double spread : {0.5, 0.8, 1.1}) {
        const Service service{.load = load, .spread = spread, .hold_off_us = hold_off_us};
        const Outcome without = Serve(service, false), with = Serve(service, true);
        SCOPED_TRACE(testing::Message() << "hold-off " << hold_off_us << ", load " << load << ", spread " << spread
                                        << ": pay " << without.share_that_pays << " and " << with.share_that_pays
                                        << ", best-effort work " << without.best_effort_share << " and "
                                        << with.best_effort_share);
        EXPECT_LE(with.share_that_pays, 0.6 * without.share_that_pays);
        const bool covers_most_pauses = hold_off_us >= service.median_pause_us;
        EXPECT_LE(with.share_that_pays, covers_most_pauses ? 0.2 : 0.25);
        if (covers_most_pauses) {  // otherwise nothing is ever descheduled without patience
          EXPECT_GE(with.best_effort_share, without.best_effort_share - 0.08);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tally::scheduler
