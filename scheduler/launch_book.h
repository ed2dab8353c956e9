// LaunchBook: the tenants of a device, the launches that each has waiting (first in, first out) and those in flight.
//
// Only bookkeeping: whose turn it is is a policy's decision. Storage grows to the largest number of tenants and
// launches that were ever there at one time and is reused from then on: in steady state nothing allocates.
//
// A launch that yielded goes back to its place in the queue, before everything that was submitted after it. A tenant
// may be removed while launches of it are in flight: they end as everybody's do, with a tenant that is no longer
// present.
//
// Not thread-safe. A wrong id is a mistake of the caller and is checked.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "scheduler/launch.h"

namespace tally::scheduler {

class LaunchBook {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Launch {
    LaunchAsked asked;
    TenantId tenant;
    uint64_t sequence = 0;     // order of submission
    Nanoseconds counted{0};    // DrainBudget's
    uint64_t yield_round = 0;  // YieldRequests'
    uint64_t round = 0;        // LookAhead's
    TimePoint dispatched_at{};
    uint32_t generation = 0;
    uint32_t previous = kNone;  // in the tenant's queue, while waiting
    uint32_t next = kNone;      // the same; or in the list of free records
    enum class State : uint8_t { kFree, kWaiting, kInFlight } state = State::kFree;
    bool has_yielded = false;
    // How the policy accounts for it, from its dispatch to its end; the tenant may change class in between.
    TenantClass dispatched_as = TenantClass::kBestEffort;
    uint8_t dispatched_at_level = 0;
    bool is_in_budget = false;  // high-priority, below the highest level
    bool is_granted = false;    // best-effort, by the starvation bound
    bool is_ahead = false;      // best-effort, dispatched where descheduling is expected
  };

  struct Tenant {
    TenantShare share;
    uint32_t generation = 0;
    uint32_t first = kNone;  // waiting
    uint32_t last = kNone;
    uint32_t num_waiting = 0;
    uint32_t num_best_effort_in_flight = 0;  // dispatched as such
    uint32_t next_free = kNone;
    bool is_present = false;
  };

  TenantId AddTenant(const TenantShare& share);
  // Its waiting launches are forgotten.
  void RemoveTenant(TenantId id);

  LaunchId Append(TenantId tenant, const LaunchAsked& asked);
  // Head of the tenant's queue to in flight. The queue must not be empty.
  LaunchId TakeHead(uint32_t tenant);
  // In flight back to its place in the queue. The tenant must be present.
  void PutBack(LaunchId id);
  // In flight to gone.
  void Finish(LaunchId id);
  // Waiting to gone.
  void Withdraw(LaunchId id);

  bool IsPresent(TenantId id) const {
    return id.index < tenants_.size() && tenants_[id.index].generation == id.generation &&
           tenants_[id.index].is_present;
  }
  Tenant& tenant(uint32_t index) { return tenants_[index]; }
  const Tenant& tenant(uint32_t index) const { return tenants_[index]; }
  Tenant& tenant(TenantId id);
  TenantId IdOf(uint32_t index) const { return {index, tenants_[index].generation}; }
  // A launch that is waiting or in flight.
  Launch& launch(LaunchId id);
  const Launch& Head(uint32_t tenant) const { return launches_[tenants_[tenant].first]; }
  // Whether a best-effort launch of the tenant that can yield, older than its head, is in flight. Looks at all
  // launches.
  bool MayGetOlderHead(uint32_t tenant) const;

 private:
  void Unlink(Launch& launch, uint32_t index);
  void Free(uint32_t index);

  std::vector<Tenant> tenants_;
  std::vector<Launch> launches_;
  uint32_t free_tenant_ = kNone;
  uint32_t free_launch_ = kNone;
  uint64_t next_sequence_ = 0;
};

}  // namespace tally::scheduler
