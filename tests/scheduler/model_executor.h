// What an executor does with a policy's decisions, on the model of a GPU and in simulated time. For property tests and
// bench/scheduler-sim.
//
// Estimates and what is measured may differ from what a launch takes, as in life. Mistakes of a policy that a real
// driver would suffer from (a launch dispatched twice, one of a tenant that has left) are reported, not carried out.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "scheduler/policy.h"
#include "tests/scheduler/gpu_model.h"

namespace tally::scheduler {

class ModelExecutor {
 public:
  enum class State : uint8_t { kGone, kWaiting, kInFlight, kYielded };
  struct Launch {
    LaunchId id;
    TenantId tenant;
    GpuModel::Work work;
    State state = State::kGone;
    bool run_through = false;
    uint64_t tag = 0;  // the caller's
    TimePoint submitted_at{};
    TimePoint dispatched_at{};  // first
    bool has_yielded = false;   // ever
  };

  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void OnDispatched(const Launch&, const Decision&) {}
    virtual void OnYieldAsked() {}
    // Complete or yielded; its record is what it was while in flight.
    virtual void OnEnded(const Launch&, const GpuModel::End&) {}
    // Everything is decided for this moment.
    virtual void OnDecided() {}
    // Time is about to pass until then; nothing happens before.
    virtual void OnAdvance(TimePoint /*until*/) {}
    virtual void OnMistake(std::string_view /*what*/) {}
  };

  ModelExecutor(Policy& policy, Observer& observer) : policy_(policy), observer_(observer) {}

  TimePoint now() const { return clock_.Now(); }
  const GpuModel& gpu() const { return gpu_; }
  Policy& policy() { return policy_; }

  // `stream` of the work is a number of the caller's, distinct among all tenants.
  LaunchId Submit(TenantId tenant, const GpuModel::Work& work, Nanoseconds estimate, bool may_yield, uint64_t tag);
  void RemoveTenant(TenantId tenant);
  // Carries out decisions until there are none. After each change of what the policy knows.
  void Decide();
  // Lets time pass until the next thing happens, if it does until `limit`; returns whether it did.
  bool Step(TimePoint limit);
  // Lets time pass until `until`, with all that happens on the GPU until then.
  void RunUntil(TimePoint until);
  // Lets time pass until nothing happens any more, at most until `limit`.
  void RunToEnd(TimePoint limit);

  const std::vector<Launch>& launches() const { return launches_; }

 private:
  void CarryOut(const Decision& decision);
  void TakeEnds();

  Policy& policy_;
  Observer& observer_;
  ManualClock clock_;
  GpuModel gpu_;
  std::vector<Launch> launches_;  // by LaunchId::index
};

}  // namespace tally::scheduler
