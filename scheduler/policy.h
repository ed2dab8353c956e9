// Policy: who may use the GPU next. One object per device and executor; what happens goes in, decisions come out.
//
//      AddTenant, ChangeTenant, RemoveTenant            tenants come, change class, level or weight, and go
//      OnSubmitted, Withdraw                            a tenant wants to launch / no longer does
//      OnCompleted, OnYielded                           a launch left the GPU, with the time that it had there
//      OnHighPriorityElsewhere                          what the activity page says about other executors
//      Next(now) until it is nothing                    after every event, and at WakeAt()
//
// The caller hands launches to the driver in the order of the decisions, so the order within a stream is the order of
// submission. A launch that yielded is dispatched once more by its own decision; what was dispatched after it on its
// stream waits for it there (that is the caller's work). Cutting a kernel into slices is the caller's work as well:
// each slice is a launch.
//
// In the executor of high-priority tenants everything here is high-priority and passes at once, level by level; in that
// of best-effort tenants the high-priority class is seen through the activity page alone. A simulator has both in one.
//
// Not thread-safe: the owner serialises calls. Times must not go backwards. No clock, no thread, no system call;
// nothing allocates once the largest number of tenants and launches has been reached. Every call takes constant time,
// but for RemoveTenant and launches that yielded (the number of the tenant's waiting launches, at worst).
#pragma once

#include <optional>

#include "base/clock.h"
#include "scheduler/launch.h"
#include "scheduler/launch_book.h"
#include "scheduler/tenant_rings.h"
#include "scheduler/tuning.h"

namespace tally::scheduler {

// What an operator sets; each policy uses what it needs.
struct PolicyConfig {
  Tuning tuning;
  // Best-effort work that has waited so long goes, one launch at a time, although there is high-priority work. Nothing:
  // it waits until there is none (docs/scheduling.md says why that is the default).
  std::optional<Nanoseconds> starvation_bound;
  // GPU time per round and unit of weight; a default tenant has 100 units.
  Nanoseconds fair_quantum = std::chrono::microseconds(1);
  // A tenant that has nothing left to launch may be back at once, because it launches one thing at a time. For so long
  // its share is kept for it, while the GPU is busy. Zero: tenants queue as much as they want.
  Nanoseconds expects_back{0};
  // If nothing has ended for so long, one more launch goes: kernels may wait for one another.
  Nanoseconds longest_wait = std::chrono::milliseconds(250);
};

class Policy {
 public:
  virtual ~Policy() = default;

  TenantId AddTenant(const TenantShare& share, TimePoint now);
  // In force from the next decision on; launches in flight stay what they were, and a tenant that becomes high-priority
  // goes on once its best-effort launches have left the GPU (those that can yield are told to).
  void ChangeTenant(TenantId tenant, const TenantShare& share, TimePoint now);
  // Its waiting launches are forgotten; those in flight (as of the policy, yielded ones are waiting) end as usual.
  void RemoveTenant(TenantId tenant, TimePoint now);

  LaunchId OnSubmitted(TenantId tenant, const LaunchAsked& asked, TimePoint now);
  // A waiting launch will not be made after all.
  void Withdraw(LaunchId launch, TimePoint now);
  // It is no longer on the GPU, having had it for `gpu_time` since its last dispatch, by measurement; if that is not
  // known, what was estimated. Completed is completed; a yielded launch waits for its next decision.
  void OnCompleted(LaunchId launch, Nanoseconds gpu_time, TimePoint now);
  void OnYielded(LaunchId launch, Nanoseconds gpu_time, TimePoint now);

  // High-priority work of other executors is there / is not, and best-effort work stays back until `opens_at`.
  virtual void OnHighPriorityElsewhere(bool is_busy, TimePoint opens_at, TimePoint now);
  // Best-effort contexts of the device are taken off the GPU while high-priority work keeps coming, or no longer are:
  // nobody then waits for what they have in flight.
  virtual void ExpectDescheduling(bool /*is_expected*/) {}
  // In force from the next decision on.
  virtual void Tune(const Tuning&) {}

  virtual std::optional<Decision> Next(TimePoint now) = 0;
  // When Next may have a decision without a further event; nothing: never.
  virtual std::optional<TimePoint> WakeAt(TimePoint /*now*/) const { return std::nullopt; }

  bool IsPresent(TenantId tenant) const { return book_.IsPresent(tenant); }

 protected:
  using Launch = LaunchBook::Launch;

  // The tenant, in its class and level, has launches waiting and had none / will have none.
  virtual void OnBacklogged(uint32_t tenant, TimePoint now) = 0;
  virtual void OnDrained(uint32_t tenant, TimePoint now) = 0;
  // Another launch than before is the first that the tenant has waiting, or none, or the tenant changed class or level.
  virtual void OnHeadChanged(uint32_t /*tenant*/, TimePoint /*now*/) {}
  // A tenant is there in this class and level, before anything else is said about it / is about to be there no longer.
  virtual void OnAdded(uint32_t /*tenant*/) {}
  virtual void OnRemoved(uint32_t /*tenant*/) {}
  virtual void OnWeightChanged(uint32_t /*tenant*/) {}
  // The launch left the GPU, its record is as it was at its dispatch. Its tenant may be gone.
  virtual void OnEnded(const Launch& launch, Nanoseconds gpu_time, TimePoint now) = 0;

  // Takes the head of the tenant's queue: it is in flight from then on, as a launch of that class, and book_ knows its
  // record.
  Decision Dispatch(uint32_t tenant, TenantClass as, TimePoint now);

  // The ring's next tenant that may go as high-priority; the ring's front from then on. A tenant that was best-effort a
  // moment ago has to wait for what it has in flight: on one of its streams a launch could otherwise wait for one
  // before it that has yielded and waits, as best-effort work, for the former.
  std::optional<uint32_t> NextHighPriorityTenant(TenantRings& rings, size_t ring) const;

  LaunchBook book_;

 private:
  void Ended(Launch& launch, Nanoseconds gpu_time, TimePoint now);
};

}  // namespace tally::scheduler
