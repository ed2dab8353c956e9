// What a policy is told about tenants and their launches, and what it answers.
//
// Ids are dense indices with a generation: a policy hands them out and takes them back, and a stale id never means
// somebody else. Their scope is the policy that made them.
#pragma once

#include <chrono>
#include <cstdint>

namespace tally::scheduler {

using Nanoseconds = std::chrono::nanoseconds;

struct TenantId {
  uint32_t index = 0;
  uint32_t generation = 0;  // 0: no tenant
  bool operator==(const TenantId&) const = default;
};

// One launch, from its submission until it is complete (or withdrawn).
struct LaunchId {
  uint32_t index = 0;
  uint32_t generation = 0;  // 0: no launch
  bool operator==(const LaunchId&) const = default;
};

enum class TenantClass : uint8_t { kHighPriority, kBestEffort };

constexpr uint8_t kNumLevels = 8;
constexpr uint32_t kDefaultWeight = 100;
constexpr uint32_t kMaxWeight = 10'000;
constexpr uint32_t kWholeShare = 1000;  // all of a GPU's time, in thousandths: no cap (share_cap.h)

// What a tenant is entitled to. All of it may change at any time.
struct TenantShare {
  TenantClass tenant_class = TenantClass::kBestEffort;
  // Among high-priority tenants: higher levels come strictly first. Below kNumLevels. Best-effort tenants: unused.
  uint8_t level = 0;
  // Among best-effort tenants: GPU time is shared in proportion. 1 to kMaxWeight. High-priority tenants: unused, those
  // of one level take turns.
  uint32_t weight = kDefaultWeight;
  bool operator==(const TenantShare&) const = default;
};

constexpr uint16_t kFillsGpu = 1000;

// One launch as its tenant asks for it: a kernel, or one slice of a kernel, a graph, a copy. What the caller knows of
// it comes from earlier launches (VariantChoice).
struct LaunchAsked {
  // Estimated time on the GPU alone. Zero: never measured. Such a best-effort launch goes only by itself.
  Nanoseconds duration{0};
  // Which of the tenant's streams, by any number of the caller's: launches of one stream run one after another.
  uint64_t stream = 0;
  // The part of the GPU that it occupies, in thousandths; launches that together stay below run side by side.
  uint16_t fill = kFillsGpu;
  // It leaves the GPU within the turnaround threshold once asked to (a launch of persistent blocks).
  bool can_yield = false;
  // A slice, or shorter than the turnaround threshold: what is in flight of such launches is to drain within it.
  bool is_short = false;
  // The turnaround threshold of its tenant, if that has one of its own; zero: everybody's.
  Nanoseconds turnaround{0};
  // For the caller, who makes `duration` and `fill` of it: launches of one kind take about the same time; 0 blocks: it
  // fills the GPU.
  uint64_t kind = 0;
  uint64_t num_blocks = 0;
};

// The GPU time of a launch: what it had of the GPU, for as long as it had it.
constexpr Nanoseconds GpuShareOf(Nanoseconds duration, uint16_t fill) { return duration * fill / kFillsGpu; }

struct Decision {
  enum class Kind : uint8_t {
    kDispatch,  // hand `launch` to the driver now; if it had yielded, let it go on
    kYield,     // tell every best-effort launch in flight that can yield to do so
  };
  Kind kind = Kind::kDispatch;
  // Of kDispatch: must not be asked to yield, whatever happens: it is what the starvation bound grants.
  bool run_through = false;
  // Likewise: there is no room for it. It goes because it may be what that which is in flight waits for.
  bool is_forced = false;
  // Likewise: so many launches of the tenant may follow it without being submitted, until high-priority work comes or
  // ExpectDescheduling says something else. They count with it: who reports its end reports that of all.
  uint32_t num_unasked = 0;
  TenantId tenant;
  LaunchId launch;
};

}  // namespace tally::scheduler
