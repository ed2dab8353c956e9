#include "bench/scheduler-sim/decision_cost.h"

#include <ctime>
#include <memory>
#include <vector>

#include "bench/scheduler-sim/allocation_count.h"

namespace tally::scheduler_sim {
namespace {

using scheduler::Decision;
using scheduler::LaunchAsked;
using scheduler::LaunchId;
using scheduler::TenantClass;

// The tenants' launches, made without anything that costs time.
class Programs {
 public:
  Programs(const Trace& trace, bool uses_variants) {
    for (const TraceTenant& tenant : trace.tenants) {
      shares_.push_back(tenant.share);
      std::vector<LaunchAsked>& asked = launches_.emplace_back();
      for (size_t i = 0; i < 64; ++i) {
        const TraceLaunch& launch = tenant.launches[i % tenant.launches.size()];
        asked.push_back({.duration = launch.duration,
                         .stream = 0,
                         .fill = launch.fill,
                         .can_yield = uses_variants && launch.turnaround > Nanoseconds(0)});
      }
    }
    next_.resize(launches_.size());
    for (uint32_t i = 0; i < shares_.size(); ++i) {
      if (IsHigh(i)) high_.push_back(i);
    }
  }
  const std::vector<uint32_t>& high() const { return high_; }
  size_t num_tenants() const { return shares_.size(); }
  const scheduler::TenantShare& share(size_t tenant) const { return shares_[tenant]; }
  bool IsHigh(size_t tenant) const { return shares_[tenant].tenant_class == TenantClass::kHighPriority; }
  const LaunchAsked& Next(size_t tenant) { return launches_[tenant][next_[tenant]++ % 64]; }

 private:
  std::vector<scheduler::TenantShare> shares_;
  std::vector<std::vector<LaunchAsked>> launches_;
  std::vector<uint32_t> next_;
  std::vector<uint32_t> high_;
};

struct InFlight {
  LaunchId launch;
  uint32_t tenant;
  Nanoseconds duration;
  bool can_yield;
};

class Loop {
 public:
  Loop(const scheduler::PolicyRow& row, const scheduler::PolicyConfig& config, Programs& programs)
      : programs_(programs), ring_(kMostInFlight) {
    const int64_t before = allocated_bytes;
    policy_ = row.create(config);
    fixed_bytes_ = allocated_bytes - before;
    tenants_.reserve(programs.num_tenants());
    asked_.resize(programs.num_tenants());
    num_waiting_.resize(programs.num_tenants());
    const int64_t with_room = allocated_bytes;
    for (size_t i = 0; i < programs.num_tenants(); ++i) {
      tenants_.push_back(policy_->AddTenant(programs.share(i), now_));
      Submit(static_cast<uint32_t>(i));
    }
    tenant_bytes_ = allocated_bytes - with_room;
  }
  int64_t fixed_bytes() const { return fixed_bytes_; }
  int64_t tenant_bytes() const { return tenant_bytes_; }

  // Decisions carried out.
  uint64_t Turn(uint64_t num_steps) {
    uint64_t num_decisions = 0;
    for (uint64_t step = 0; step < num_steps; ++step) {
      // Every high-priority tenant launches now and then.
      if (step % kStepsBetweenBursts == 0) {
        for (const uint32_t tenant : programs_.high()) Submit(tenant);
      }
      while (num_in_flight_ < kMostInFlight) {
        const std::optional<Decision> decision = policy_->Next(now_);
        if (!decision) break;
        ++num_decisions;
        if (decision->kind == Decision::Kind::kYield) {
          Yield();
          continue;
        }
        const uint32_t tenant = decision->tenant.index;
        const LaunchAsked& asked = asked_[tenant];
        ring_[(first_ + num_in_flight_++) % kMostInFlight] = {decision->launch, tenant, asked.duration,
                                                              asked.can_yield};
        if (--num_waiting_[tenant] == 0 && !programs_.IsHigh(tenant)) Submit(tenant);
      }
      // The oldest ends; if nothing is in flight, the hold-off passes.
      now_ += std::chrono::microseconds(num_in_flight_ == 0 ? 100 : 10);
      if (num_in_flight_ == 0) continue;
      const InFlight ended = ring_[first_];
      first_ = (first_ + 1) % kMostInFlight;
      --num_in_flight_;
      policy_->OnCompleted(ended.launch, ended.duration, now_);
    }
    return num_decisions;
  }

 private:
  static constexpr size_t kMostInFlight = 1024;
  static constexpr uint64_t kStepsBetweenBursts = 200;

  void Submit(uint32_t tenant) {
    asked_[tenant] = programs_.Next(tenant);
    ++num_waiting_[tenant];
    policy_->OnSubmitted(tenants_[tenant], asked_[tenant], now_);
  }
  // All that can; they are dispatched again later, as the launches that the policy knows.
  void Yield() {
    size_t num_left = 0;
    for (size_t i = 0; i < num_in_flight_; ++i) {
      const InFlight launch = ring_[(first_ + i) % kMostInFlight];
      if (launch.can_yield && !programs_.IsHigh(launch.tenant)) {
        policy_->OnYielded(launch.launch, launch.duration / 2, now_);
        ++num_waiting_[launch.tenant];
      } else {
        ring_[(first_ + num_left++) % kMostInFlight] = launch;
      }
    }
    num_in_flight_ = num_left;
  }

  Programs& programs_;
  std::unique_ptr<scheduler::Policy> policy_;
  std::vector<scheduler::TenantId> tenants_;
  std::vector<LaunchAsked> asked_;  // the last one of each
  std::vector<uint32_t> num_waiting_;
  std::vector<InFlight> ring_;
  size_t first_ = 0;
  size_t num_in_flight_ = 0;
  TimePoint now_{};
  int64_t fixed_bytes_ = 0;
  int64_t tenant_bytes_ = 0;
};

}  // namespace

DecisionCost MeasureDecisions(const Trace& trace, const scheduler::PolicyRow& row,
                              const scheduler::PolicyConfig& config, std::chrono::milliseconds duration) {
  Programs programs(trace, row.uses_variants);
  Loop loop(row, config, programs);
  DecisionCost cost;
  cost.bytes_fixed = static_cast<double>(loop.fixed_bytes());
  cost.bytes_per_tenant = static_cast<double>(loop.tenant_bytes()) / static_cast<double>(programs.num_tenants());
  loop.Turn(20'000);  // to the largest number of launches
  const uint64_t allocations_before = num_allocations;
  // Processor time: what others do on the machine is not the policy's.
  const std::clock_t begin = std::clock();
  uint64_t num_decisions = 0;
  std::chrono::duration<double> passed{0};
  while (passed < duration) {
    num_decisions += loop.Turn(10'000);
    passed = std::chrono::duration<double>(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  cost.num_allocations = num_allocations - allocations_before;
  cost.decisions_per_second = static_cast<double>(num_decisions) / passed.count();
  return cost;
}

}  // namespace tally::scheduler_sim
