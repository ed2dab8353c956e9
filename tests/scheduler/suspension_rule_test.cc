#include "scheduler/suspension_rule.h"

#include <gtest/gtest.h>

#include <random>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(SuspensionRuleTest, LongStretchesAreNotWaitedForAndShortOnesAre) {
  SuspensionRule rule;
  EXPECT_EQ(rule.Delay(), SuspensionRule::kWorthwhile);
  for (int i = 0; i < 5; ++i) rule.OnStretch(microseconds(200));
  EXPECT_EQ(rule.Delay(), SuspensionRule::kWorthwhile);
  for (int i = 0; i < 5; ++i) rule.OnStretch(milliseconds(8));
  EXPECT_EQ(rule.Delay(), microseconds(0));
}

TEST(SuspensionRuleTest, PatienceStaysWithinItsBounds) {
  SuspensionRule rule;
  for (int i = 0; i < 100; ++i) rule.OnGap(microseconds(100));
  EXPECT_EQ(rule.patience(), SuspensionRule::kMostPatience);
  for (int i = 0; i < 100; ++i) rule.OnGap(milliseconds(10));
  EXPECT_EQ(rule.patience(), SuspensionRule::kLeastPatience);
}

// Gaps within bursts, which jitter around 100 us, and now and then a pause of milliseconds: it learns to sit the former
// out, and does not become as patient as it may be.
TEST(SuspensionRuleTest, ItLearnsToSitOutTheGapsOfBursts) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> jitter(std::log(100.0), 0.5);
  SuspensionRule rule;
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
  EXPECT_LT(rule.patience(), SuspensionRule::kMostPatience);
}

}  // namespace
}  // namespace tally::scheduler
