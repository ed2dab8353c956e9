// Random traces under every promise that the policies make, on the model of a GPU. Each promise is also shown to be
// able to fail: policies that break it, some of them from the table, must be caught.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "scheduler/policies/look_ahead_policy.h"
#include "scheduler/policies/tally_policy.h"
#include "scheduler/policy_list.h"
#include "tests/scheduler/model_executor.h"

namespace tally::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

enum Promise : uint32_t {
  kBoundedWait = 1,      // while there is high-priority work, best-effort launches run no longer than the bound
  kHoldOff = 2,          // none is dispatched while there is high-priority work, nor during the shortest hold-off
  kOnce = 4,             // no launch is lost or dispatched twice
  kStreamOrder = 8,      // launches of a stream go in the order of submission
  kLevels = 16,          // a high-priority launch goes only if nothing of a higher level waits or runs
  kAtOnce = 32,          // launches of the highest level go in the moment in which they are known, whatever was changed
  kWorkConserving = 64,  // the GPU is not idle while somebody waits who may run
  kPresent = 128,        // nothing goes of a tenant that has left
};
std::string NamesOf(uint32_t promises) {
  static const std::map<uint32_t, std::string> kNames = {
      {kBoundedWait, "bounded wait"},       {kHoldOff, "hold-off"}, {kOnce, "once"},
      {kStreamOrder, "stream order"},       {kLevels, "levels"},    {kAtOnce, "at once"},
      {kWorkConserving, "work-conserving"}, {kPresent, "present"}};
  std::string names;
  for (const auto& [bit, name] : kNames) {
    if ((promises & bit) != 0) names += name + "; ";
  }
  return names;
}

constexpr Tuning kTuning{.min_hold_off = microseconds(20), .max_hold_off = microseconds(200)};
// Estimates are at most so far below what a launch takes.
constexpr double kEstimateError = 1.5;

// One random life of a device: tenants come, submit, change and go, other executors announce high-priority work.
class RandomTrace : public ModelExecutor::Observer {
 public:
  RandomTrace(Policy& policy, bool uses_variants, uint64_t seed)
      : executor_(policy, *this), uses_variants_(uses_variants), random_(seed) {}

  // The promises that were broken.
  uint32_t Run() {
    has_elsewhere_ = random_() % 3 == 0;
    long_ones_yield_ = random_() % 2 == 0;
    const auto num_first = 1 + random_() % 5;
    for (uint64_t i = 0; i < num_first; ++i) AddTenant();
    for (int step = 0; step < 60; ++step) {
      // Bursts, and pauses long enough for admission to open.
      const auto pause = random_() % 4 == 0 ? random_() % 1'000'000 : random_() % 30'000;
      executor_.RunUntil(executor_.now() + Nanoseconds(pause));
      Act();
      executor_.Decide();
    }
    const auto hold_off = is_busy_elsewhere_ ? microseconds(30) : microseconds(0);
    executor_.policy().OnHighPriorityElsewhere(false, executor_.now() + hold_off, executor_.now());
    is_busy_elsewhere_ = false;
    NotePresence();
    executor_.Decide();
    executor_.RunToEnd(executor_.now() + std::chrono::seconds(100));
    for (const auto& launch : executor_.launches()) {
      if (launch.state != ModelExecutor::State::kGone) broken_ |= kOnce;
    }
    return broken_;
  }
  uint64_t num_dispatched() const { return num_dispatched_; }

 private:
  struct TenantState {
    TenantId id;
    TenantShare share;
    uint32_t first_stream = 0;
    int num_waiting = 0;
    TimePoint changed_at{Nanoseconds(-1)};
  };

  TenantShare RandomShare() {
    TenantShare share;
    share.tenant_class = random_() % 2 == 0 ? TenantClass::kHighPriority : TenantClass::kBestEffort;
    share.level = static_cast<uint8_t>(random_() % 3);
    share.weight = static_cast<uint32_t>(1 + random_() % 300);
    return share;
  }
  void AddTenant() {
    TenantState tenant;
    tenant.share = RandomShare();
    tenant.id = executor_.policy().AddTenant(tenant.share, executor_.now());
    tenant.first_stream = num_streams_;
    num_streams_ += 2;
    tenants_.push_back(tenant);
  }
  TenantState* Find(TenantId id) {
    const auto found = std::find_if(tenants_.begin(), tenants_.end(), [&](const auto& t) { return t.id == id; });
    return found == tenants_.end() ? nullptr : &*found;
  }

  void Act() {
    const auto what = random_() % 20;
    if (what == 0 || tenants_.empty()) return AddTenant();
    const size_t which = random_() % tenants_.size();
    TenantState& tenant = tenants_[which];
    if (what == 1) {
      executor_.RemoveTenant(tenant.id);
      tenants_.erase(tenants_.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (what == 2) {
      tenant.share = RandomShare();
      tenant.changed_at = executor_.now();
      executor_.policy().ChangeTenant(tenant.id, tenant.share, executor_.now());
    } else if (what == 3 && has_elsewhere_) {
      is_busy_elsewhere_ = !is_busy_elsewhere_;
      executor_.policy().OnHighPriorityElsewhere(is_busy_elsewhere_, executor_.now() + microseconds(30),
                                                 executor_.now());
    } else {
      const auto num = 1 + random_() % 6;
      for (uint64_t i = 0; i < num; ++i) Submit(tenant);
    }
    NotePresence();
  }

  void Submit(TenantState& tenant) {
    GpuModel::Work work;
    work.stream = tenant.first_stream + static_cast<uint32_t>(random_() % 2);
    work.duration = microseconds(1 + random_() % (random_() % 8 == 0 ? 5000 : 200));
    work.fill = random_() % 2 == 0 ? kFillsGpu : static_cast<uint16_t>(1 + random_() % kFillsGpu);
    // In half of the traces everything long can yield: there the bound is short.
    work.can_yield = uses_variants_ && work.duration > kTuning.turnaround_threshold &&
                     (random_() % 2 == 0 || (long_ones_yield_ && work.duration > microseconds(200)));
    work.turnaround = microseconds(1 + random_() % 31);
    Nanoseconds estimate{0};
    if (random_() % 8 != 0) {
      const double error = std::uniform_real_distribution<double>(1 / kEstimateError, 2.0)(random_);
      estimate = Nanoseconds(static_cast<int64_t>(static_cast<double>(work.duration.count()) * error) + 1);
    }
    // Unless it can yield, nothing makes it leave.
    if (!work.can_yield) longest_ = std::max(longest_, work.duration);
    executor_.Submit(tenant.id, work, estimate, uses_variants_, next_tag_++);
    ++tenant.num_waiting;
  }

  Nanoseconds Bound() const {
    const auto drain =
        Nanoseconds(static_cast<int64_t>(static_cast<double>(kTuning.target_drain.count()) * kEstimateError));
    return std::max(drain, longest_) + microseconds(32);
  }

  bool IsHighPriorityPresent() const {
    return is_busy_elsewhere_ || num_high_in_flight_ > 0 ||
           std::any_of(tenants_.begin(), tenants_.end(), [](const TenantState& tenant) {
             return tenant.share.tenant_class == TenantClass::kHighPriority && tenant.num_waiting > 0;
           });
  }
  void NotePresence() {
    const bool is_present = IsHighPriorityPresent();
    if (is_present == was_present_) return;
    was_present_ = is_present;
    in_the_way_ = Nanoseconds(0);
    present_since_or_gone_at_ = executor_.now();
    was_ever_present_ = true;
  }

  // Launches in flight stay what they were when a tenant changes: some are of a higher level than anybody has now, or
  // the tenant's own are best-effort.
  bool IsHeldBack(const TenantState& tenant) const {
    for (const auto& launch : executor_.launches()) {
      if (launch.state != ModelExecutor::State::kInFlight) continue;
      const auto& [was_high, level] = in_flight_as_.at(launch.tag);
      if (was_high ? level > tenant.share.level : launch.tenant == tenant.id) return true;
    }
    return false;
  }

  void OnDispatched(const ModelExecutor::Launch& launch, const Decision& decision) override {
    ++num_dispatched_;
    TenantState* tenant = Find(launch.tenant);
    ASSERT_NE(tenant, nullptr);
    for (const auto& other : executor_.launches()) {
      const bool waits = other.state == ModelExecutor::State::kWaiting || other.state == ModelExecutor::State::kYielded;
      if (waits && other.work.stream == launch.work.stream && other.tag < launch.tag) broken_ |= kStreamOrder;
    }
    const bool is_high = tenant->share.tenant_class == TenantClass::kHighPriority;
    if (is_high) {
      for (const TenantState& other : tenants_) {
        const bool is_above =
            other.share.tenant_class == TenantClass::kHighPriority && other.share.level > tenant->share.level;
        if (is_above && other.num_waiting > 0) broken_ |= kLevels;
      }
      for (uint8_t level = tenant->share.level + 1; level < kNumLevels; ++level) {
        if (num_in_flight_at_[level] > 0) broken_ |= kLevels;
      }
      ++num_high_in_flight_;
      ++num_in_flight_at_[tenant->share.level];
    } else if (!decision.run_through) {
      if (was_present_) broken_ |= kHoldOff;
      if (was_ever_present_ && executor_.now() < present_since_or_gone_at_ + kTuning.min_hold_off) broken_ |= kHoldOff;
    }
    in_flight_as_[launch.tag] = {is_high, tenant->share.level};
    --tenant->num_waiting;
    NotePresence();
  }

  void OnEnded(const ModelExecutor::Launch& launch, const GpuModel::End& end) override {
    const auto as = in_flight_as_.at(launch.tag);
    in_flight_as_.erase(launch.tag);
    if (as.first) {
      --num_high_in_flight_;
      --num_in_flight_at_[as.second];
    }
    TenantState* tenant = Find(launch.tenant);
    if (end.has_yielded && tenant != nullptr) ++tenant->num_waiting;
    NotePresence();
  }

  void OnDecided() override {
    bool best_effort_waits = false;
    uint8_t highest = 0;
    for (const TenantState& tenant : tenants_) {
      if (tenant.share.tenant_class == TenantClass::kHighPriority) highest = std::max(highest, tenant.share.level);
    }
    for (const TenantState& tenant : tenants_) {
      if (tenant.num_waiting == 0) continue;
      if (tenant.share.tenant_class == TenantClass::kBestEffort) {
        best_effort_waits = true;
      } else if (tenant.share.level == highest && !IsHeldBack(tenant)) {
        broken_ |= kAtOnce;
      }
    }
    if (executor_.gpu().num_in_flight() > 0 || was_present_ || !best_effort_waits) return;
    const auto may_go_at = present_since_or_gone_at_ + kTuning.max_hold_off;
    if (!was_ever_present_ || executor_.now() >= may_go_at) broken_ |= kWorkConserving;
  }

  void OnAdvance(TimePoint until) override {
    if (!was_present_) return;
    bool best_effort_runs = false;
    for (const auto& launch : executor_.launches()) {
      if (launch.state != ModelExecutor::State::kInFlight || !executor_.gpu().IsRunning(launch.id.index)) continue;
      // What a tenant had in flight when it changed or left counts for neither: it may have waited behind a launch that
      // had yielded, and run when that one was resumed as high-priority or dropped.
      const TenantState* tenant = Find(launch.tenant);
      if (tenant == nullptr || tenant->changed_at >= launch.dispatched_at) continue;
      best_effort_runs = best_effort_runs || !in_flight_as_.at(launch.tag).first;
    }
    if (!best_effort_runs) return;
    in_the_way_ += until - executor_.now();
    if (in_the_way_ > Bound()) broken_ |= kBoundedWait;
  }

  void OnMistake(std::string_view what) override { broken_ |= what == "a tenant that has left" ? kPresent : kOnce; }

  ModelExecutor executor_;
  const bool uses_variants_;
  std::mt19937_64 random_;
  std::vector<TenantState> tenants_;
  std::map<uint64_t, std::pair<bool, uint8_t>> in_flight_as_;  // by tag: high-priority, level
  std::array<int, kNumLevels> num_in_flight_at_{};
  int num_high_in_flight_ = 0;
  uint32_t num_streams_ = 0;
  uint64_t next_tag_ = 0;
  uint64_t num_dispatched_ = 0;
  Nanoseconds longest_{0};
  bool has_elsewhere_ = false;
  bool long_ones_yield_ = false;
  bool is_busy_elsewhere_ = false;
  bool was_present_ = false;
  bool was_ever_present_ = false;
  TimePoint present_since_or_gone_at_{};
  Nanoseconds in_the_way_{0};  // best-effort launches ran for so long since high-priority work came
  uint32_t broken_ = 0;
};

PolicyConfig Config() {
  return {.tuning = kTuning, .starvation_bound = {}, .longest_wait = std::chrono::seconds(1000)};
}

TEST(PolicyProperty, TallyKeepsItsPromisesOnRandomTraces) {
  uint64_t num_dispatched = 0;
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    TallyPolicy policy(Config());
    RandomTrace trace(policy, /*uses_variants=*/true, seed);
    const uint32_t broken = trace.Run();
    ASSERT_EQ(broken, 0u) << "seed " << seed << ": " << NamesOf(broken);
    num_dispatched += trace.num_dispatched();
  }
  EXPECT_GT(num_dispatched, 2'000'000u) << "the traces must do something";
}

// Its bound on the wait is for launches like those before: the depth follows what draining took, not what it will take.
// Levels mean nothing to it.
TEST(PolicyProperty, LookAheadKeepsItsPromisesOnRandomTraces) {
  for (uint64_t seed = 0; seed < 5'000; ++seed) {
    LookAheadPolicy policy(Config());
    const uint32_t broken = RandomTrace(policy, /*uses_variants=*/true, seed).Run() & ~(kBoundedWait | kLevels);
    ASSERT_EQ(broken, 0u) << "seed " << seed << ": " << NamesOf(broken);
  }
}

TEST(PolicyProperty, EveryPolicyLosesNothingAndKeepsOrder) {
  for (const PolicyRow& row : Policies()) {
    for (uint64_t seed = 0; seed < 1'000; ++seed) {
      const std::unique_ptr<Policy> policy = row.create(Config());
      const uint32_t broken =
          RandomTrace(*policy, row.uses_variants, seed).Run() & (kOnce | kStreamOrder | kPresent | kWorkConserving);
      ASSERT_EQ(broken, 0u) << row.name << ", seed " << seed << ": " << NamesOf(broken);
    }
  }
}

// ---- That the tests can fail.

uint32_t BrokenOver(uint64_t num_seeds, bool uses_variants, const std::function<std::unique_ptr<Policy>()>& create) {
  uint32_t broken = 0;
  for (uint64_t seed = 0; seed < num_seeds; ++seed) {
    const std::unique_ptr<Policy> policy = create();
    broken |= RandomTrace(*policy, uses_variants, seed).Run();
  }
  return broken;
}

uint32_t BrokenByPolicy(std::string_view name, bool uses_variants) {
  const PolicyRow* row = *FindPolicy(name);
  return BrokenOver(300, uses_variants, [&] { return row->create(Config()); });
}

TEST(PolicyPropertyCatches, PoliciesWithoutPriorities) {
  EXPECT_TRUE(BrokenByPolicy("none", false) & kBoundedWait);
  EXPECT_TRUE(BrokenByPolicy("none", false) & kHoldOff);
  EXPECT_TRUE(BrokenByPolicy("none", false) & kLevels);
  EXPECT_TRUE(BrokenByPolicy("fair", false) & kHoldOff);
  EXPECT_TRUE(BrokenByPolicy("fair", false) & kAtOnce);
}

TEST(PolicyPropertyCatches, APolicyThatLooksBackInsteadOfAhead) {
  EXPECT_TRUE(BrokenByPolicy("look-ahead", true) & kBoundedWait) << "then the test above may ask for it";
}

TEST(PolicyPropertyCatches, APolicyThatDoesNotAskToYield) {
  EXPECT_TRUE(BrokenByPolicy("kernel-granular", true) & kBoundedWait);
  EXPECT_FALSE(BrokenByPolicy("tally-paper", true) & kBoundedWait);
  EXPECT_TRUE(BrokenByPolicy("tally-paper", true) & kHoldOff) << "it has no hold-off";
}

// Changes one decision in thirty.
class Tampering : public TallyPolicy {
 public:
  explicit Tampering(uint64_t every = 30) : TallyPolicy(Config()), every_(every) {}
  std::optional<Decision> Next(TimePoint now) override {
    const std::optional<Decision> decision = TallyPolicy::Next(now);
    if (!decision || decision->kind != Decision::Kind::kDispatch || ++num_ % every_ != 0) return decision;
    return Tamper(*decision, now);
  }
  virtual std::optional<Decision> Tamper(Decision decision, TimePoint now) = 0;

 private:
  const uint64_t every_;
  uint64_t num_ = 0;
};

TEST(PolicyPropertyCatches, ALostLaunch) {
  struct Loses : Tampering {
    std::optional<Decision> Tamper(Decision, TimePoint now) override { return Next(now); }
  };
  EXPECT_TRUE(BrokenOver(50, true, [] { return std::make_unique<Loses>(); }) & kOnce);
}

TEST(PolicyPropertyCatches, ALaunchThatGoesTwice) {
  struct Repeats : TallyPolicy {
    Repeats() : TallyPolicy(Config()) {}
    std::optional<Decision> Next(TimePoint now) override {
      if (again) return *std::exchange(again, std::nullopt);
      const auto decision = TallyPolicy::Next(now);
      if (decision && decision->kind == Decision::Kind::kDispatch && ++num % 30 == 0) again = decision;
      return decision;
    }
    std::optional<Decision> again;
    int num = 0;
  };
  EXPECT_TRUE(BrokenOver(50, true, [] { return std::make_unique<Repeats>(); }) & kOnce);
}

TEST(PolicyPropertyCatches, LaunchesThatChangePlaces) {
  struct Swaps : Tampering {
    std::optional<Decision> Tamper(Decision first, TimePoint now) override {
      const auto second = TallyPolicy::Next(now);
      if (!second || second->kind != Decision::Kind::kDispatch) return first;
      kept = first;
      return second;
    }
    std::optional<Decision> Next(TimePoint now) override {
      if (kept) return *std::exchange(kept, std::nullopt);
      return Tampering::Next(now);
    }
    std::optional<Decision> kept;
  };
  EXPECT_TRUE(BrokenOver(50, true, [] { return std::make_unique<Swaps>(); }) & kStreamOrder);
}

TEST(PolicyPropertyCatches, ALaunchOfATenantThatHasLeft) {
  struct Keeps : Tampering {
    std::optional<Decision> Tamper(Decision decision, TimePoint) override {
      kept = decision;
      return std::nullopt;
    }
    std::optional<Decision> Next(TimePoint now) override {
      if (kept && !IsPresent(kept->tenant)) return *std::exchange(kept, std::nullopt);
      return Tampering::Next(now);
    }
    std::optional<Decision> kept;
  };
  EXPECT_TRUE(BrokenOver(300, true, [] { return std::make_unique<Keeps>(); }) & kPresent);
}

TEST(PolicyPropertyCatches, APolicyThatForgetsToYieldOnce) {
  struct Forgets : TallyPolicy {
    Forgets() : TallyPolicy(Config()) {}
    std::optional<Decision> Next(TimePoint now) override {
      const auto decision = TallyPolicy::Next(now);
      return decision && decision->kind == Decision::Kind::kYield && ++num % 3 == 0 ? TallyPolicy::Next(now) : decision;
    }
    int num = 0;
  };
  EXPECT_TRUE(BrokenOver(300, true, [] { return std::make_unique<Forgets>(); }) & kBoundedWait);
}

TEST(PolicyPropertyCatches, APolicyThatDoesNotLookAtTheActivityPage) {
  struct Blind : TallyPolicy {
    Blind() : TallyPolicy(Config()) {}
    void OnHighPriorityElsewhere(bool, TimePoint, TimePoint) override {}
  };
  EXPECT_TRUE(BrokenOver(300, true, [] { return std::make_unique<Blind>(); }) & kHoldOff);
}

TEST(PolicyPropertyCatches, APolicyThatHesitates) {
  struct Hesitates : Tampering {
    std::optional<Decision> Tamper(Decision decision, TimePoint) override {
      kept = decision;
      return std::nullopt;
    }
    std::optional<Decision> Next(TimePoint now) override {
      if (kept && ++num % 2 == 0) return *std::exchange(kept, std::nullopt);
      return kept ? std::nullopt : Tampering::Next(now);
    }
    std::optional<Decision> kept;
    int num = 0;
  };
  const uint32_t broken = BrokenOver(100, true, [] { return std::make_unique<Hesitates>(); });
  EXPECT_TRUE(broken & kAtOnce) << NamesOf(broken);
  EXPECT_TRUE(broken & kWorkConserving) << NamesOf(broken);
}

}  // namespace
}  // namespace tally::scheduler
