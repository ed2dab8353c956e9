#include "scheduler/launch_book.h"

#include <algorithm>

#include "base/check.h"

namespace tally::scheduler {

TenantId LaunchBook::AddTenant(const TenantShare& share) {
  uint32_t index = free_tenant_;
  if (index == kNone) {
    index = static_cast<uint32_t>(tenants_.size());
    tenants_.emplace_back();
  } else {
    free_tenant_ = tenants_[index].next_free;
  }
  const uint32_t generation = tenants_[index].generation + 1;
  tenants_[index] = {.share = share, .generation = generation, .is_present = true};
  return {index, generation};
}

LaunchBook::Tenant& LaunchBook::tenant(TenantId id) {
  CHECK(IsPresent(id));
  return tenants_[id.index];
}

LaunchBook::Launch& LaunchBook::launch(LaunchId id) {
  CHECK(id.index < launches_.size() && launches_[id.index].generation == id.generation &&
        launches_[id.index].state != Launch::State::kFree);
  return launches_[id.index];
}

void LaunchBook::RemoveTenant(TenantId id) {
  Tenant& leaving = tenant(id);
  for (uint32_t i = leaving.first; i != kNone;) {
    const uint32_t next = launches_[i].next;
    Free(i);
    i = next;
  }
  leaving.first = leaving.last = kNone;
  leaving.num_waiting = 0;
  leaving.is_present = false;
  leaving.next_free = free_tenant_;
  free_tenant_ = id.index;
}

LaunchId LaunchBook::Append(TenantId id, const LaunchAsked& asked) {
  Tenant& owner = tenant(id);
  uint32_t index = free_launch_;
  if (index == kNone) {
    index = static_cast<uint32_t>(launches_.size());
    launches_.emplace_back();
  } else {
    free_launch_ = launches_[index].next;
  }
  const uint32_t generation = launches_[index].generation + 1;
  Launch& launch = launches_[index];
  launch = {.asked = asked,
            .tenant = id,
            .sequence = next_sequence_++,
            .generation = generation,
            .previous = owner.last,
            .state = Launch::State::kWaiting};
  (owner.last == kNone ? owner.first : launches_[owner.last].next) = index;
  owner.last = index;
  ++owner.num_waiting;
  return {index, generation};
}

void LaunchBook::Unlink(Launch& launch, uint32_t index) {
  Tenant& owner = tenants_[launch.tenant.index];
  (launch.previous == kNone ? owner.first : launches_[launch.previous].next) = launch.next;
  (launch.next == kNone ? owner.last : launches_[launch.next].previous) = launch.previous;
  launch.previous = launch.next = kNone;
  --owner.num_waiting;
  CHECK(owner.num_waiting == 0 || (owner.first != index && owner.last != index));
}

LaunchId LaunchBook::TakeHead(uint32_t tenant_index) {
  const uint32_t index = tenants_[tenant_index].first;
  CHECK(index != kNone);
  Launch& launch = launches_[index];
  Unlink(launch, index);
  launch.state = Launch::State::kInFlight;
  return {index, launch.generation};
}

bool LaunchBook::MayGetOlderHead(uint32_t tenant) const {
  const TenantId id = IdOf(tenant);
  return std::any_of(launches_.begin(), launches_.end(), [&](const Launch& launch) {
    return launch.state == Launch::State::kInFlight && launch.tenant == id && launch.asked.can_yield &&
           launch.dispatched_as == TenantClass::kBestEffort && launch.sequence < Head(tenant).sequence;
  });
}

void LaunchBook::PutBack(LaunchId id) {
  Launch& yielded = launch(id);
  CHECK(yielded.state == Launch::State::kInFlight);
  Tenant& owner = tenant(yielded.tenant);
  // Only other launches that have yielded can be older: a few at most.
  uint32_t behind = owner.first;
  while (behind != kNone && launches_[behind].sequence < yielded.sequence) behind = launches_[behind].next;
  yielded.next = behind;
  yielded.previous = behind == kNone ? owner.last : launches_[behind].previous;
  (yielded.previous == kNone ? owner.first : launches_[yielded.previous].next) = id.index;
  (behind == kNone ? owner.last : launches_[behind].previous) = id.index;
  yielded.state = Launch::State::kWaiting;
  yielded.has_yielded = true;
  ++owner.num_waiting;
}

void LaunchBook::Finish(LaunchId id) {
  CHECK(launch(id).state == Launch::State::kInFlight);
  Free(id.index);
}

void LaunchBook::Withdraw(LaunchId id) {
  Launch& withdrawn = launch(id);
  CHECK(withdrawn.state == Launch::State::kWaiting);
  Unlink(withdrawn, id.index);
  Free(id.index);
}

void LaunchBook::Free(uint32_t index) {
  Launch& launch = launches_[index];
  launch.state = Launch::State::kFree;
  launch.next = free_launch_;
  free_launch_ = index;
}

}  // namespace tally::scheduler
