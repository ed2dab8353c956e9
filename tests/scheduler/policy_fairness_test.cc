// Sharing by weight, the starvation bound, and what leaves or changes, over long runs on the model of a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "scheduler/policies/tally_policy.h"
#include "scheduler/policy_list.h"
#include "tests/scheduler/model_executor.h"

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Best-effort tenants that always want more, beside bursts of high-priority work.
class Backlogged : public ModelExecutor::Observer {
 public:
  struct Options {
    bool uses_variants = true;
    bool high_priority_bursts = false;
  };

  Backlogged(Policy& policy, Options options, uint64_t seed)
      : executor_(policy, *this), options_(options), random_(seed) {
    high_ = policy.AddTenant({.tenant_class = TenantClass::kHighPriority}, executor_.now());
  }

  size_t Add(uint32_t weight, Nanoseconds longest, uint16_t fill) {
    Tenant tenant{executor_.policy().AddTenant({.weight = weight}, executor_.now()), weight, longest, fill};
    tenants_.push_back(tenant);
    Submit(tenants_.size() - 1);
    return tenants_.size() - 1;
  }
  void Remove(size_t which) {
    tenants_[which].is_gone = true;
    executor_.RemoveTenant(tenants_[which].id);
    executor_.Decide();
  }
  void SetWeight(size_t which, uint32_t weight) {
    tenants_[which].weight = weight;
    executor_.policy().ChangeTenant(tenants_[which].id, {.weight = weight}, executor_.now());
  }

  void RunFor(Nanoseconds time) {
    const TimePoint until = executor_.now() + time;
    executor_.Decide();
    while (executor_.now() < until) {
      const TimePoint next =
          options_.high_priority_bursts ? executor_.now() + microseconds(200 + random_() % 20'000) : until;
      executor_.RunUntil(std::min(next, until));
      if (!options_.high_priority_bursts) continue;
      for (int i = 0; i < 5; ++i) {
        executor_.Submit(high_, {.stream = 0, .duration = microseconds(20 + random_() % 200)}, microseconds(100), false,
                         kHighTag);
        executor_.Decide();
        executor_.RunUntil(executor_.now() + microseconds(random_() % 300));
      }
    }
  }
  void ForgetWhatWasUsed() {
    for (Tenant& tenant : tenants_) tenant.used = Nanoseconds(0);
  }

  // The largest deviation of a present tenant's part of the GPU time from its weight, relative.
  double Unfairness() const {
    double weights = 0;
    double used = 0;
    for (const Tenant& tenant : tenants_) {
      if (tenant.is_gone) continue;
      weights += tenant.weight;
      used += static_cast<double>(tenant.used.count());
    }
    double worst = 0;
    for (const Tenant& tenant : tenants_) {
      if (tenant.is_gone) continue;
      const double part = static_cast<double>(tenant.used.count()) / used;
      worst = std::max(worst, std::abs(part / (tenant.weight / weights) - 1));
    }
    return worst;
  }
  Nanoseconds used(size_t which) const { return tenants_[which].used; }
  Nanoseconds longest_time_without_dispatch() const { return longest_gap_; }
  Nanoseconds longest_wait_of(size_t which) const { return tenants_[which].longest_wait; }
  ModelExecutor& executor() { return executor_; }
  TenantId high() const { return high_; }

 private:
  static constexpr uint64_t kHighTag = UINT64_MAX;
  struct Tenant {
    TenantId id;
    uint32_t weight = 1;
    Nanoseconds longest{0};
    uint16_t fill = 0;
    Nanoseconds used{0};
    TimePoint served_at{};
    Nanoseconds longest_wait{0};
    bool is_gone = false;
  };

  void Submit(size_t which) {
    const Tenant& tenant = tenants_[which];
    GpuModel::Work work;
    work.stream = static_cast<uint32_t>(1 + which);
    work.duration =
        tenant.longest / 4 +
        Nanoseconds(static_cast<int64_t>(random_() % static_cast<uint64_t>(tenant.longest.count() * 3 / 4)));
    work.fill = tenant.fill;
    work.can_yield = which % 2 == 0;
    work.turnaround = microseconds(10);
    // Wrong by up to a factor of two; now and then nothing is known.
    const double error = std::uniform_real_distribution<double>(0.5, 2)(random_);
    const auto estimate = static_cast<int64_t>(static_cast<double>(work.duration.count()) * error);
    executor_.Submit(tenant.id, work, Nanoseconds(random_() % 50 == 0 ? 0 : estimate), options_.uses_variants, which);
  }

  void OnDispatched(const ModelExecutor::Launch& launch, const Decision&) override {
    if (launch.tag == kHighTag) return;
    longest_gap_ = std::max(longest_gap_, executor_.now() - last_dispatch_);
    last_dispatch_ = executor_.now();
    Tenant& tenant = tenants_[launch.tag];
    tenant.longest_wait = std::max(tenant.longest_wait, executor_.now() - tenant.served_at);
    tenant.served_at = executor_.now();
    // As a program that launches without waiting for the end: there is always one that waits.
    if (!launch.has_yielded) Submit(launch.tag);
  }
  void OnEnded(const ModelExecutor::Launch& launch, const GpuModel::End& end) override {
    if (launch.tag == kHighTag) return;
    Tenant& tenant = tenants_[launch.tag];
    tenant.used += GpuShareOf(end.gpu_time, launch.work.fill);
  }

  ModelExecutor executor_;
  const Options options_;
  std::mt19937_64 random_;
  TenantId high_;
  std::vector<Tenant> tenants_;
  TimePoint last_dispatch_{};
  Nanoseconds longest_gap_{0};
};

// How long a window must be for 2 %: every tenant's share at least 100 x (a round + twice the longest launch of
// anybody, both relative to weight).
struct Mix {
  std::vector<uint32_t> weights;
  std::vector<Nanoseconds> longest;
  std::vector<uint16_t> fills;
  Nanoseconds window{0};

  explicit Mix(uint64_t seed, bool is_all_full) {
    std::mt19937_64 random(seed);
    const size_t num = 2 + random() % 5;
    double sum = 0;
    double per_weight = 1000;  // ns of a round
    for (size_t i = 0; i < num; ++i) {
      weights.push_back(static_cast<uint32_t>(50 + random() % 451));
      longest.push_back(microseconds(20 + random() % 500));
      fills.push_back(is_all_full || random() % 2 == 0 ? kFillsGpu : static_cast<uint16_t>(100 + random() % 900));
      sum += weights.back();
      per_weight = std::max(per_weight, 1000 + 2 * static_cast<double>(longest.back().count()) / weights.back());
    }
    window = Nanoseconds(static_cast<int64_t>(100 * per_weight * sum));
  }
};

double UnfairnessOf(std::string_view name, uint64_t seed, bool high_priority_bursts) {
  const PolicyRow* row = *FindPolicy(name);
  const std::unique_ptr<Policy> policy = row->create({});
  const Mix mix(seed, false);
  Backlogged run(*policy, {.uses_variants = row->uses_variants, .high_priority_bursts = high_priority_bursts}, seed);
  for (size_t i = 0; i < mix.weights.size(); ++i) run.Add(mix.weights[i], mix.longest[i], mix.fills[i]);
  run.RunFor(milliseconds(20));
  run.ForgetWhatWasUsed();
  run.RunFor(mix.window * (high_priority_bursts ? 2 : 1));
  return run.Unfairness();
}

TEST(PolicyFairness, SharesAreWithinTwoPercentOfTheWeights) {
  for (const std::string_view policy : {"fair", "tally"}) {
    for (uint64_t seed = 0; seed < 150; ++seed) {
      ASSERT_LE(UnfairnessOf(policy, seed, false), 0.02) << policy << ", seed " << seed;
    }
  }
}

TEST(PolicyFairness, AlsoBetweenBurstsOfHighPriorityWork) {
  for (uint64_t seed = 0; seed < 60; ++seed) ASSERT_LE(UnfairnessOf("tally", seed, true), 0.02) << "seed " << seed;
}

TEST(PolicyFairnessCatches, PoliciesThatDoNotShareByTime) {
  for (const std::string_view policy : {"kernel-granular", "tally-paper"}) {
    EXPECT_GT(UnfairnessOf(policy, 1, false), 0.1) << policy;
  }
}

TEST(PolicyFairness, AWeightCountsFromTheNextDecisionOn) {
  TallyPolicy policy({});
  Backlogged run(policy, {}, 1);
  const size_t a = run.Add(100, microseconds(100), kFillsGpu);
  const size_t b = run.Add(100, microseconds(100), kFillsGpu);
  run.RunFor(milliseconds(100));
  EXPECT_LE(run.Unfairness(), 0.02);
  run.SetWeight(a, 400);
  run.ForgetWhatWasUsed();
  run.RunFor(milliseconds(200));
  EXPECT_LE(run.Unfairness(), 0.02);
  EXPECT_NEAR(static_cast<double>(run.used(a).count()) / static_cast<double>(run.used(b).count()), 4, 0.1);
}

TEST(PolicyFairness, WhoLeavesFreesItsPlace) {
  TallyPolicy policy({});
  Backlogged run(policy, {}, 2);
  const size_t a = run.Add(100, microseconds(100), kFillsGpu);
  const size_t b = run.Add(900, milliseconds(20), kFillsGpu);
  run.RunFor(milliseconds(200));
  run.Remove(b);
  run.ForgetWhatWasUsed();
  run.RunFor(milliseconds(50));
  // At most one launch of the other was in flight when it left.
  EXPECT_GE(run.used(a), milliseconds(50 - 20 - 1));
  const size_t c = run.Add(100, microseconds(100), kFillsGpu);
  run.ForgetWhatWasUsed();
  run.RunFor(milliseconds(50));
  EXPECT_NEAR(static_cast<double>(run.used(c).count()) / static_cast<double>(run.used(a).count()), 1, 0.05)
      << "a newcomer has no advantage and no debt of whoever had its place";
}

TEST(PolicyFairness, SmallTenantsRunSideBySide) {
  for (const auto& [policy_name, expected] : {std::pair{"tally", 4.0}, {"tally-paper", 1.0}}) {
    const PolicyRow* row = *FindPolicy(policy_name);
    const std::unique_ptr<Policy> policy = row->create({});
    Backlogged run(*policy, {}, 3);
    for (int i = 0; i < 4; ++i) run.Add(100, microseconds(100), 250);
    run.RunFor(milliseconds(100));
    const double used = static_cast<double>(run.executor().gpu().busy_time().count()) / 1e8;
    EXPECT_NEAR(used * 4, expected, 0.25 * expected) << policy_name;
  }
}

// High-priority work without end, and a starvation bound.
TEST(PolicyStarvation, TheBoundHoldsForTheClassAndForEveryTenant) {
  std::mt19937_64 random(4);
  for (int trace = 0; trace < 200; ++trace) {
    PolicyConfig config;
    config.starvation_bound = milliseconds(1 + random() % 20);
    TallyPolicy policy(config);
    Backlogged run(policy, {}, static_cast<uint64_t>(trace));
    const auto num = static_cast<int>(1 + random() % 6);
    const auto longest = microseconds(100 + random() % 900);
    for (int i = 0; i < num; ++i) run.Add(static_cast<uint32_t>(1 + random() % 500), longest, kFillsGpu);
    policy.OnHighPriorityElsewhere(true, {}, run.executor().now());
    run.RunFor(*config.starvation_bound * num * 10);
    EXPECT_GT(run.used(0), Nanoseconds(0));
    const auto slack = longest + microseconds(1);
    ASSERT_LE(run.longest_time_without_dispatch(), *config.starvation_bound + slack) << "trace " << trace;
    for (int i = 0; i < num; ++i) {
      ASSERT_LE(run.longest_wait_of(static_cast<size_t>(i)), (*config.starvation_bound + slack) * num)
          << "trace " << trace;
      ASSERT_GT(run.used(static_cast<size_t>(i)), Nanoseconds(0)) << "trace " << trace;
    }
    // Nor does it let through more than that: one launch per bound.
    Nanoseconds used{0};
    for (int i = 0; i < num; ++i) used += run.used(static_cast<size_t>(i));
    ASSERT_LE(used, longest * (num * 10 + 1)) << "trace " << trace;
  }
}

// The default (kDefaultStarvationBound in server/daemon/policy_rules.h) must never be worse than none.
TEST(PolicyStarvation, BesideAServiceThatPausesTheDefaultBoundChangesNothing) {
  const auto used_with = [](std::optional<Nanoseconds> bound) {
    PolicyConfig config;
    config.starvation_bound = bound;
    TallyPolicy policy(config);
    Backlogged run(policy, {.high_priority_bursts = true}, 6);
    for (const uint32_t weight : {100u, 300u}) run.Add(weight, milliseconds(1), kFillsGpu);
    run.RunFor(std::chrono::seconds(30));
    return std::pair(run.used(0), run.used(1));
  };
  const auto unbounded = used_with(std::nullopt);
  EXPECT_EQ(used_with(std::chrono::seconds(10)), unbounded);
  EXPECT_NE(used_with(microseconds(500)), unbounded) << "this test would not see what a bound lets through";
}

TEST(PolicyStarvation, WithoutABoundHighPriorityWorkMayTakeAll) {
  TallyPolicy policy({});
  Backlogged run(policy, {}, 5);
  run.Add(100, microseconds(100), kFillsGpu);
  policy.OnHighPriorityElsewhere(true, {}, run.executor().now());
  run.RunFor(std::chrono::seconds(10));
  EXPECT_EQ(run.used(0), Nanoseconds(0));
  policy.OnHighPriorityElsewhere(false, run.executor().now(), run.executor().now());
  run.RunFor(milliseconds(10));
  EXPECT_GT(run.used(0), milliseconds(9)) << "and is over when it is over";
}

// Another executor knows its requests' pauses better than we: its hold-off counts, not ours.
TEST(PolicyElsewhere, BestEffortWorkWaitsForTheHoldOffOfAnotherExecutor) {
  TallyPolicy policy({});
  const TimePoint now{std::chrono::seconds(1)};
  const TenantId tenant = policy.AddTenant({}, now);
  policy.OnHighPriorityElsewhere(true, {}, now);
  policy.OnSubmitted(tenant, {.duration = microseconds(100)}, now);
  const TimePoint opens_at = now + std::chrono::seconds(2);
  policy.OnHighPriorityElsewhere(false, opens_at, now);
  EXPECT_EQ(policy.WakeAt(now), opens_at);
  EXPECT_FALSE(policy.Next(opens_at - Nanoseconds(1)));
  EXPECT_TRUE(policy.Next(opens_at));
}

}  // namespace
}  // namespace tally::scheduler
