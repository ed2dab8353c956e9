#include "scheduler/policies/look_ahead_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kThreshold = microseconds(30) + kGiveBackOverhead;

class LookAheadPolicyTest : public testing::Test {
 protected:
  explicit LookAheadPolicyTest(std::optional<Nanoseconds> starvation_bound = {})
      : policy_({.tuning = {.turnaround_threshold = kThreshold}, .starvation_bound = starvation_bound}) {}

  TenantId Add(TenantClass tenant_class = TenantClass::kBestEffort) {
    return policy_.AddTenant({.tenant_class = tenant_class}, now_);
  }
  LaunchId Submit(TenantId tenant, const LaunchAsked& asked = {}) { return policy_.OnSubmitted(tenant, asked, now_); }
  // What goes at this moment.
  std::vector<Decision> Decide() {
    std::vector<Decision> decisions;
    while (const std::optional<Decision> decision = policy_.Next(now_)) decisions.push_back(*decision);
    return decisions;
  }
  std::vector<TenantId> WhoGoes() {
    std::vector<TenantId> tenants;
    for (const Decision& decision : Decide()) tenants.push_back(decision.tenant);
    return tenants;
  }
  void End(const Decision& decision) { policy_.OnCompleted(decision.launch, Nanoseconds(0), now_); }
  void SetBusyElsewhere(bool is_busy) { policy_.OnHighPriorityElsewhere(is_busy, now_ + microseconds(40), now_); }

  TimePoint now_{std::chrono::seconds(1)};
  LookAheadPolicy policy_;
};

TEST_F(LookAheadPolicyTest, StaysBackForOthersUntilTheyLetIt) {
  const TenantId tenant = Add();
  SetBusyElsewhere(true);
  Submit(tenant);
  EXPECT_TRUE(Decide().empty());
  EXPECT_FALSE(policy_.WakeAt(now_));
  SetBusyElsewhere(false);
  EXPECT_TRUE(Decide().empty()) << "the hold-off";
  EXPECT_EQ(policy_.WakeAt(now_), now_ + microseconds(40));
  now_ += microseconds(40);
  EXPECT_EQ(Decide().size(), 1u);
}

TEST_F(LookAheadPolicyTest, TheDepthFollowsWhatDrainingTakes) {
  const TenantId tenant = Add();
  for (int i = 0; i < 200; ++i) Submit(tenant);
  std::vector<Decision> in_flight = Decide();
  EXPECT_EQ(in_flight.size(), 1u);
  for (int round = 0; round < 5; ++round) {
    now_ += microseconds(100);
    for (const Decision& decision : in_flight) End(decision);
    in_flight = Decide();
  }
  EXPECT_EQ(in_flight.size(), 32u) << "twice as many each time";
  now_ += milliseconds(3);
  for (const Decision& decision : in_flight) End(decision);
  EXPECT_EQ(Decide().size(), 1u);
}

TEST_F(LookAheadPolicyTest, ShortOnesDrainWithinTheThresholdAndNobodyCountsForTheOther) {
  const TenantId tenant = Add(), another = Add();
  Submit(another);
  EXPECT_EQ(Decide().size(), 1u);
  for (int i = 0; i < 10; ++i) Submit(tenant, {.duration = microseconds(10), .is_short = true});
  const std::vector<Decision> in_flight = Decide();
  EXPECT_EQ(in_flight.size(), 3u);
  Submit(another);
  EXPECT_TRUE(Decide().empty());
  now_ += microseconds(10);
  End(in_flight[0]);
  EXPECT_EQ(WhoGoes(), std::vector{tenant});
}

// Else the small ones of a busy tenant would keep those of another one waiting for ever.
TEST_F(LookAheadPolicyTest, AShortLaunchIsNotOvertakenByShorterOnes) {
  const TenantId small = Add(), large = Add();
  for (int i = 0; i < 10; ++i) Submit(small, {.duration = microseconds(10), .is_short = true});
  std::vector<Decision> in_flight = Decide();
  Submit(large, {.duration = microseconds(25), .is_short = true});
  std::vector<TenantId> went;
  for (int i = 0; i < 8; ++i) {
    now_ += microseconds(10);
    ASSERT_FALSE(in_flight.empty());
    End(in_flight.front());
    in_flight.erase(in_flight.begin());
    for (const Decision& decision : Decide()) {
      in_flight.push_back(decision);
      went.push_back(decision.tenant);
    }
  }
  EXPECT_NE(std::find(went.begin(), went.begin() + 3, large), went.begin() + 3);
}

TEST_F(LookAheadPolicyTest, WhatCanYieldGoesAndIsToldTo) {
  const TenantId tenant = Add(), high = Add(TenantClass::kHighPriority);
  for (int i = 0; i < 300; ++i) Submit(tenant, {.duration = microseconds(20), .can_yield = true});
  EXPECT_EQ(Decide().size(), 300u);
  Submit(high);
  const std::vector<Decision> decisions = Decide();
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].kind, Decision::Kind::kYield);
  EXPECT_EQ(decisions[1].tenant, high);
}

TEST_F(LookAheadPolicyTest, NobodyWaitsForRoomLongerThanTheLongestWait) {
  const TenantId tenant = Add(), another = Add();
  Submit(tenant);
  EXPECT_EQ(Decide().size(), 1u);  // and never ends
  now_ += milliseconds(100);
  Submit(tenant);
  EXPECT_EQ(policy_.WakeAt(now_), now_ + milliseconds(250));
  now_ += milliseconds(249);
  EXPECT_TRUE(Decide().empty());
  now_ += milliseconds(1);
  const std::vector<Decision> decisions = Decide();
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_TRUE(decisions[0].is_forced);

  now_ += microseconds(400);
  End(decisions[0]);
  for (int i = 0; i < 3; ++i) {
    Submit(another);
    const std::vector<Decision> next = Decide();
    ASSERT_EQ(next.size(), 1u) << "what does not end takes nobody's place any more";
    EXPECT_FALSE(next[0].is_forced);
    now_ += microseconds(400);
    End(next[0]);
  }
}

TEST_F(LookAheadPolicyTest, TimeBeforeAClosedGateIsNoWaitForRoom) {
  const TenantId tenant = Add();
  Submit(tenant);
  EXPECT_EQ(Decide().size(), 1u);
  SetBusyElsewhere(true);
  Submit(tenant);
  now_ += std::chrono::seconds(2);
  EXPECT_TRUE(Decide().empty());
  SetBusyElsewhere(false);
  now_ += milliseconds(200);
  EXPECT_TRUE(Decide().empty());
  now_ += milliseconds(51);
  EXPECT_EQ(Decide().size(), 1u);
}

TEST_F(LookAheadPolicyTest, WhereDeschedulingIsExpectedATenantIsBoundedByHowFarItIsAhead) {
  const TenantId tenant = Add(), another = Add();
  policy_.ExpectDescheduling(true);
  for (int i = 0; i < 10; ++i) Submit(tenant, {.duration = milliseconds(50)});
  const std::vector<Decision> in_flight = Decide();
  ASSERT_EQ(in_flight.size(), LookAheadPolicy::kMostAsked);
  EXPECT_EQ(in_flight[0].num_unasked, LookAheadPolicy::kLaunchesPerAsking - 1);
  Submit(another);
  EXPECT_EQ(WhoGoes(), std::vector{another}) << "each for itself";
  now_ += milliseconds(10);
  End(in_flight[0]);
  EXPECT_EQ(WhoGoes(), std::vector{tenant});
  // While others come and go.
  int num_forced = 0;
  for (int i = 0; i < 30; ++i) {
    now_ += milliseconds(10);
    Submit(another);
    for (const Decision& decision : Decide()) {
      if (decision.tenant == another) {
        End(decision);
      } else {
        EXPECT_TRUE(decision.is_forced);
        EXPECT_EQ(i, 24);
        ++num_forced;
      }
    }
  }
  EXPECT_EQ(num_forced, 1);
  policy_.ExpectDescheduling(false);
  End(in_flight[1]);
  EXPECT_EQ(WhoGoes(), std::vector{tenant}) << "what went before does not count, and there is room for one";
  Submit(another);
  EXPECT_TRUE(Decide().empty());
}

class StarvationTest : public LookAheadPolicyTest {
 protected:
  static constexpr auto kBound = milliseconds(10);
  StarvationTest() : LookAheadPolicyTest(kBound) {}
};

TEST_F(StarvationTest, OneLaunchGoesPerBoundWhoeverHasWaitedLongest) {
  const TenantId tenant = Add(), another = Add();
  SetBusyElsewhere(true);
  Submit(tenant, {.duration = milliseconds(1), .can_yield = true});
  now_ += milliseconds(1);
  Submit(another);
  Submit(tenant);
  now_ += milliseconds(8);
  EXPECT_TRUE(Decide().empty());
  EXPECT_EQ(policy_.WakeAt(now_), now_ + milliseconds(1));
  now_ += milliseconds(1);
  const std::vector<Decision> granted = Decide();
  ASSERT_EQ(granted.size(), 1u);
  EXPECT_EQ(granted[0].tenant, tenant);
  EXPECT_TRUE(granted[0].run_through) << "it would give back at once what it was granted";
  now_ += kBound - microseconds(1);
  EXPECT_TRUE(Decide().empty());
  now_ += microseconds(1);
  EXPECT_EQ(WhoGoes(), std::vector{another});
  now_ += kBound;
  EXPECT_EQ(WhoGoes(), std::vector{tenant});
}

TEST_F(StarvationTest, AGateThatOpensForAMomentHasLetNobodyThroughWhoHadNoRoom) {
  const TenantId tenant = Add(), another = Add();
  Submit(another);
  EXPECT_EQ(Decide().size(), 1u);  // takes the only place
  SetBusyElsewhere(true);
  Submit(tenant);
  now_ += milliseconds(6);
  EXPECT_TRUE(Decide().empty());
  policy_.OnHighPriorityElsewhere(false, now_, now_);
  EXPECT_TRUE(Decide().empty());
  SetBusyElsewhere(true);
  now_ += milliseconds(4);
  EXPECT_EQ(WhoGoes(), std::vector{tenant});
}

}  // namespace
}  // namespace tally::scheduler
